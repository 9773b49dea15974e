package kvtransfer_test

import (
	"testing"

	"github.com/kvtransfer/kvtransfer/clients/go/kvtransfer"
	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

func begin(t *testing.T, sender *kvtransfer.Sender) *kvtransfer.Write {
	t.Helper()
	piece, ok := sender.Targets()[0].Begin()
	if !ok {
		t.Fatalf("nothing may be written: %s, %v", sender.Poll(), sender.Failure())
	}
	return piece
}

// TestAWriteEndsOnce: as with a deferred Failed after Done. Another write that is under way still holds the pages.
func TestAWriteEndsOnce(t *testing.T) {
	prefill, decode, engine := startPair(t, dial(t), 15)
	sender, _ := meet(t, prefill, decode, engine)
	first, second := begin(t, sender), begin(t, sender)
	first.Done(50)
	first.Done(50)
	first.Failed(50, pb.FailureReason_FAILURE_REASON_DISCONNECTED, "deferred")
	if failure := sender.Failure(); failure != nil {
		t.Errorf("failed by a write that was done: %v", failure)
	}
	sender.Close()
	if got := prefill.Released(); len(got) != 0 {
		t.Errorf("%v came back under a write", got)
	}
	second.Done(50)
	back(t, prefill, sender.Room())
}

func TestMovedBytesNeverGoBack(t *testing.T) {
	client := dial(t)
	prefill, decode, engine := startPair(t, client, 15)
	sender, receiver := meet(t, prefill, decode, engine)
	piece := begin(t, sender)
	piece.Progress(-7)
	piece.Progress(100)
	piece.Done(-1)
	if err := sender.Targets()[0].Complete(); err != nil {
		t.Fatal(err)
	}
	ends(t, receiver, success)
	await(t, prefill, "told of the verdict", func() bool { return sender.RoomPoll() == success })
	for _, participant := range must[*pb.PollResponse](t)(client.Poll(inTime(t), sender.Room())).GetTransfers()[0].GetParticipants() {
		if participant.GetTransferredBytes() != 100 {
			t.Errorf("%s moved %d bytes", participant.GetWorker().GetWorkerId(), participant.GetTransferredBytes())
		}
	}
}
