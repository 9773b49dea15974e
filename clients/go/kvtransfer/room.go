package kvtransfer

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

const (
	pollFailed       = pb.KVPoll_KV_POLL_FAILED
	pollBootstrap    = pb.KVPoll_KV_POLL_BOOTSTRAPPING
	pollWaiting      = pb.KVPoll_KV_POLL_WAITING_FOR_INPUT
	pollTransferring = pb.KVPoll_KV_POLL_TRANSFERRING
	pollSuccess      = pb.KVPoll_KV_POLL_SUCCESS
)

// Final tells whether a poll stays for ever.
func Final(poll pb.KVPoll) bool {
	return poll == pollFailed || poll == pollSuccess
}

// Failure is why a room failed.
type Failure struct {
	Reason  pb.FailureReason
	Message string
	// WorkerID is the worker it began with; empty if none.
	WorkerID string
	// Refused is the service's refusal of the join or of another item; nil if it was none. It works with [errors.Is].
	Refused error
}

// String is the reason and the message.
func (f *Failure) String() string {
	return strings.TrimPrefix(f.Reason.String(), "FAILURE_REASON_") + ": " + f.Message
}

func failureFrom(wire *pb.Failure) *Failure {
	return &Failure{Reason: wire.GetReason(), Message: wire.GetMessage(), WorkerID: wire.GetWorkerId()}
}

// wire cuts the message, which may be an engine's or NIXL's, and takes a reason that there is not for the worker's own.
func (f *Failure) wire(most int) *pb.Failure {
	reason := f.Reason
	if _, known := pb.FailureReason_name[int32(reason)]; !known || reason == 0 {
		reason = pb.FailureReason_FAILURE_REASON_WORKER_REPORTED
	}
	return &pb.Failure{Reason: reason, Message: cut(f.Message, most), WorkerId: f.WorkerID}
}

// Join is a worker's wish to enter a room.
type Join struct {
	// Room is chosen by the router, in [1, 2^63).
	Room int64
	// PeerEngine is the engine on the other side. A sender may leave it empty.
	PeerEngine string
	// RequestID is the name that people know the request by; at most 128 bytes.
	RequestID string
	// Traceparent is the request's, as W3C has it; at most 64 bytes.
	Traceparent string
	// Timeouts allowed to the room, each at most a day; the shortest of the service's and all that its workers asked for
	// counts.
	Timeouts *pb.Timeouts
}

// room is one join of a worker: what its two kinds have in common.
type room struct {
	Join
	joinID   uint64
	poll     pb.KVPoll // this worker's own
	roomPoll pb.KVPoll
	// failedFirst: the room failed before this worker's part succeeded, which it may still do: the engine goes on seeing
	// FAILED.
	failedFirst bool
	failure     *Failure
	deadline    time.Duration // when the worker gives the room up by itself, should the service be out of reach
	sent        bool          // the join may have reached the service
	accepted    bool          // the service told something of this join
	closing     bool
	release     *pb.Release // what the service said of the pages last

	// One of the two, as the worker's role is.
	sender   *senderSide
	receiver *receiverSide
}

func (r *room) key() joinKey {
	return joinKey{r.Room, r.joinID}
}

// shown is what the engine sees: its own poll; FAILED when the room is, unless it already succeeded.
func (r *room) shown() pb.KVPoll {
	if r.failedFirst {
		return pollFailed
	}
	return r.poll
}

// ending: the room was asked to end, or has ended.
func (r *room) ending() bool {
	return r.failure != nil || Final(r.roomPoll) || r.closing
}

// advance moves the own poll forward; final ones stay.
func (r *room) advance(poll pb.KVPoll) {
	if !Final(r.poll) && poll > r.poll {
		r.poll = poll
	}
}

// fail ends this worker's part. True if it had not ended before.
func (r *room) fail(failure *Failure) bool {
	if Final(r.poll) {
		return false
	}
	r.poll = pollFailed
	if r.failure == nil {
		r.failure = failure
	}
	return true
}

// update takes what the service says of the room; final polls stay.
func (r *room) update(told *pb.RoomUpdate) {
	r.accepted = true
	if !Final(r.roomPoll) {
		r.roomPoll = told.GetPoll()
		r.failedFirst = r.roomPoll == pollFailed && r.poll != pollSuccess
	}
	if told.GetFailure() != nil && r.failure == nil {
		r.failure = failureFrom(told.GetFailure())
	}
	if own := told.GetOwnPoll(); own == pollWaiting || own == pollTransferring {
		r.advance(own)
	}
}

func (r *room) joinMessage() *pb.Join {
	join := &pb.Join{
		Room:         r.Room,
		JoinId:       r.joinID,
		PeerEngineId: r.PeerEngine,
		RequestId:    r.RequestID,
		Traceparent:  r.Traceparent,
		Timeouts:     r.Timeouts,
	}
	if r.receiver != nil {
		join.Destination = r.receiver.destination
	}
	return join
}

// progressMessage is this worker's progress; nil if there is none to report.
func (r *room) progressMessage() *pb.Progress {
	if r.poll == pollBootstrap || r.poll == pollWaiting {
		return nil
	}
	progress := &pb.Progress{Room: r.Room, JoinId: r.joinID, Poll: r.poll}
	if r.poll == pollFailed && r.failure != nil {
		progress.Failure = r.failure.wire(maxFailureMessage)
	}
	if r.sender != nil {
		progress.TransferredBytes = r.sender.moved()
		progress.Completions = r.sender.completions()
		return progress
	}
	if r.poll == pollTransferring {
		return nil // the service knows it from the senders
	}
	if r.poll == pollSuccess {
		progress.Completions = r.receiver.completions
	}
	return progress
}

// cleanupMessage releases this join, with its last progress.
func (r *room) cleanupMessage() *pb.CleanupItem {
	drained := r.sender == nil || r.sender.drained
	return &pb.CleanupItem{Room: r.Room, JoinId: r.joinID, Drained: drained, Last: r.progressMessage()}
}

// stateMessage is this join as it is told when the worker registers again.
func (r *room) stateMessage(now time.Duration) *pb.RoomState {
	state := &pb.RoomState{
		Room:     r.Room,
		JoinId:   r.joinID,
		Poll:     r.poll,
		TimeLeft: durationpb.New(max(0, r.deadline-now)),
	}
	if Final(r.roomPoll) {
		state.Verdict = r.roomPoll
	}
	if r.failure != nil && r.poll != pollSuccess {
		state.Failure = r.failure.wire(maxStateMessage)
	}
	if r.sender != nil {
		for _, target := range r.sender.targets {
			state.Peers = append(state.Peers, target.peer)
		}
		state.Completions = r.sender.completions()
	} else {
		state.Peers = r.receiver.senders
		state.Completions = r.receiver.completions
	}
	return state
}
