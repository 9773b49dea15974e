package kvtransfer_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvtransfer/kvtransfer/clients/go/kvservicetest"
	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// watching pulls the answers of a watch one by one.
type watching struct {
	t    *testing.T
	next func() (*pb.WatchResponse, error, bool)
}

func watch(t *testing.T, client *kvtransfer.Client, request *pb.WatchRequest) watching {
	t.Helper()
	next, stop := iter.Pull2(client.Watch(inTime(t), request))
	t.Cleanup(stop)
	return watching{t, next}
}

// rooms gives the polls of the next answer.
func (w watching) rooms() map[int64]pb.KVPoll {
	w.t.Helper()
	answer, err, ok := w.next()
	if err != nil || !ok {
		w.t.Fatalf("the watch ended: %v", err)
	}
	found := map[int64]pb.KVPoll{}
	for _, transfer := range answer.GetTransfers() {
		found[transfer.GetRoom()] = transfer.GetPoll()
	}
	return found
}

func abort(t *testing.T, client *kvtransfer.Client, room int64) {
	t.Helper()
	must[[]kvtransfer.RoomResult](t)(client.Abort(inTime(t), "", room))
}

func TestWatchTellsWhatIsThereAndThenWhatChanges(t *testing.T) {
	client := dial(t)
	first, second, other := newRoom(), newRoom(), newRoom()
	abort(t, client, first)
	follow := watch(t, client, &pb.WatchRequest{Rooms: []int64{first, second}})
	if got := follow.rooms(); len(got) != 1 || got[first] != pb.KVPoll_KV_POLL_FAILED {
		t.Fatalf("at first %v", got)
	}
	abort(t, client, other)
	abort(t, client, second)
	if got := follow.rooms(); len(got) != 1 || got[second] != pb.KVPoll_KV_POLL_FAILED {
		t.Errorf("then %v", got)
	}
}

func TestWatchGoesOnWhereItWasAfterABreak(t *testing.T) {
	client := dial(t)
	network := newProxy(t, target)
	through := dialTo(t, network.address())
	before, meanwhile := newRoom(), newRoom()
	abort(t, client, before)
	follow := watch(t, through, &pb.WatchRequest{Rooms: []int64{before, meanwhile}})
	follow.rooms()
	network.cut()
	abort(t, client, meanwhile)
	network.restore()
	got := follow.rooms()
	if len(got) != 1 || got[meanwhile] != pb.KVPoll_KV_POLL_FAILED {
		t.Errorf("after the break, what had been told or not all that is new: %v", got)
	}
	if network.accepted() < 2 {
		t.Errorf("the stream did not break")
	}
}

func TestWatchFailsWhenTheServiceStaysAway(t *testing.T) {
	service := kvservicetest.Start(t)
	client := dialTo(t, service.Target, kvtransfer.WithTimeout(300*time.Millisecond))
	follow := watch(t, client, &pb.WatchRequest{})
	follow.rooms()
	service.Kill()
	if _, err, _ := follow.next(); !errors.Is(err, kvtransfer.ErrUnavailable) {
		t.Errorf("the watch of a dead service: %v", err)
	}
	if _, _, more := follow.next(); more {
		t.Error("there is more after the error")
	}
}

func TestWatchRefusesABadRequestAtOnce(t *testing.T) {
	follow := watch(t, dial(t), &pb.WatchRequest{AfterRevision: -1})
	var failed *kvtransfer.Error
	if _, err, _ := follow.next(); !errors.As(err, &failed) || failed.Field != "after_revision" {
		t.Errorf("a negative revision: %v", err)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	client := dial(t)
	ctx, cancel := context.WithCancel(inTime(t))
	defer cancel()
	room := newRoom()
	for _, err := range client.Watch(ctx, &pb.WatchRequest{Rooms: []int64{room}}) {
		if err == nil {
			cancel()
			continue
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestNothingIsLeftOfAWatchOrAClient(t *testing.T) {
	dial(t) // or skip
	before := goleak.IgnoreCurrent()
	client, err := kvtransfer.New(target)
	if err != nil {
		t.Fatal(err)
	}
	must[*pb.GetServerInfoResponse](t)(client.GetServerInfo(inTime(t)))
	connected := goleak.IgnoreCurrent()
	for _, err := range client.Watch(inTime(t), &pb.WatchRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	goleak.VerifyNone(t, connected)
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	goleak.VerifyNone(t, before)
}
