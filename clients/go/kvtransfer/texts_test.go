package kvtransfer_test

import (
	"strings"
	"testing"

	"github.com/kvtransfer/kvtransfer/clients/go/kvservicetest"
	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// Texts that would cost a worker its session, were they told as they are.

func TestWhoHasMuchToSayLosesNothingButTheRest(t *testing.T) {
	prefill, decode, engine := startPair(t, dial(t), 15)
	sender, receiver := meet(t, prefill, decode, engine)
	other, others := meet(t, prefill, decode, engine)
	sender.Abort("\xff" + strings.Repeat("no pages left ", 1<<19))
	ends(t, receiver, failed)
	if told := receiver.Failure(); len(told.Message) > 1024 || !strings.HasPrefix(told.Message, "no pages left ") {
		t.Errorf("told %.100q of %d bytes", told.Message, len(told.Message))
	}
	piece, _ := other.Targets()[0].Begin()
	piece.Failed(0, 99, "a reason that there is not: \xf0\x9f")
	ends(t, others, failed)
	if told := others.Failure(); told.Reason != pb.FailureReason_FAILURE_REASON_WORKER_REPORTED {
		t.Errorf("told %v", told)
	}
	sender, receiver = meet(t, prefill, decode, engine) // the session goes on
	write(t, sender)
	ends(t, receiver, success)
}

func TestAFullListOfRoomsThatFailedAtLengthIsRegisteredAgain(t *testing.T) {
	service := kvservicetest.Start(t)
	client := dialTo(t, service.Target)
	said := registration(strings.Repeat("p", 63), pb.Role_ROLE_PREFILL, "m")
	said.LeaseTtl = seconds(3)
	worker := start(t, client, said, nil)
	const rooms = 4500 // a failure's message takes up to 1024 bytes of a report
	var last *kvtransfer.Sender
	for range rooms {
		last = must[*kvtransfer.Sender](t)(worker.Sender(kvtransfer.Join{Room: newRoom()}, 20))
		last.Abort(strings.Repeat("~", 1<<12))
	}
	await(t, worker, "told of all", func() bool { return last.RoomPoll() == failed })
	epoch := worker.Ref().GetEpoch()
	if err := service.Pause(); err != nil {
		t.Fatal(err)
	}
	await(t, worker, "fenced", func() bool { return !worker.Open() })
	if err := service.Resume(); err != nil {
		t.Fatal(err)
	}
	await(t, worker, "registered again", func() bool { return worker.Open() && worker.Ref().GetEpoch() > epoch })
	engine := must[*pb.Engine](t)(client.GetEngine(inTime(t), said.GetEngineId(), pb.WorkerView_WORKER_VIEW_BASIC))
	if open := engine.GetWorkers()[0].GetOpenRooms(); open != rooms {
		t.Errorf("the service was told of %d rooms", open)
	}
}
