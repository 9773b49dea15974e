package kvtransfer

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// handle is one room as an engine holds it: what both ends offer.
type handle struct {
	worker *Worker
	room   *room
}

// Room is the room's number.
func (h handle) Room() int64 {
	return h.room.Room
}

// Poll is this worker's own progress; FAILED when the room is, unless it already said SUCCESS, which stays.
//
// SUCCESS of a receiver means that its own bytes are there: an engine of several ranks acts on the least over them.
func (h handle) Poll() pb.KVPoll {
	h.worker.mu.Lock()
	defer h.worker.mu.Unlock()
	return h.room.shown()
}

// RoomPoll is the room's progress over all its workers, as the service told last.
func (h handle) RoomPoll() pb.KVPoll {
	h.worker.mu.Lock()
	defer h.worker.mu.Unlock()
	return h.room.roomPoll
}

// Failure is why the room failed, or was asked to end; nil if it was not.
func (h handle) Failure() *Failure {
	h.worker.mu.Lock()
	defer h.worker.mu.Unlock()
	return h.room.failure
}

// Release is what the service said of this worker's pages last, after Close: free, waiting for whom, or quarantined.
// Nil before it said anything. Pages are the engine's again only once [Worker.Released] names them.
func (h handle) Release() *pb.Release {
	h.worker.mu.Lock()
	defer h.worker.mu.Unlock()
	return proto.CloneOf(h.room.release)
}

// Wait returns the poll once it is final. It fails when ctx ends.
func (h handle) Wait(ctx context.Context) (pb.KVPoll, error) {
	err := h.worker.Wait(ctx, func() bool { return Final(h.Poll()) })
	return h.Poll(), err
}

// Abort asks the room to end. Nothing if this worker's part has ended.
func (h handle) Abort(message string) {
	h.worker.event(func(r *rooms) { r.abort(h.room, message) })
}

// Close gives this worker's part up: what has not ended is aborted. Pages and slots come back through [Worker.Released],
// once nothing reads or writes them any more.
func (h handle) Close() {
	h.worker.event(func(r *rooms) { r.close(h.room) })
}

// Receiver is a room of a decode worker. Made by [Worker.Receiver].
type Receiver struct{ handle }

// Offer names where to write, once.
//
// Errors: [ErrInvalidField], and then nothing is offered.
func (r *Receiver) Offer(destination Destination) error {
	return r.worker.step(func(rooms *rooms) error { return rooms.offer(r.room, destination) })
}

// Sender is a room of a prefill worker. Made by [Worker.Sender].
type Sender struct{ handle }

// Targets returns the receivers that have offered, in the order of their offers. All have once Poll is past
// BOOTSTRAPPING.
func (s *Sender) Targets() []*Target {
	s.worker.mu.Lock()
	defer s.worker.mu.Unlock()
	targets := make([]*Target, 0, len(s.room.sender.targets))
	for _, target := range s.room.sender.targets {
		targets = append(targets, &Target{s, target})
	}
	return targets
}

// Target is one receiver of a sender's room, and what it offered.
type Target struct {
	sender *Sender
	target *target
}

// Peer is the receiver.
func (t *Target) Peer() *pb.Peer {
	return proto.CloneOf(t.target.peer)
}

// Destination is where it wants the request's items.
func (t *Target) Destination() *pb.Destination {
	return proto.CloneOf(t.target.destination)
}

// Begin asks, right before a piece is handed to the data plane, whether it may be: the lease holds, the service has
// confirmed the room to this registration, all receivers have offered, and nobody asked the room to end. If so, a write is
// under way, which must be ended. If not, it may be again, until Poll is final: [Worker.Wait] may ask.
func (t *Target) Begin() (*Write, bool) {
	if err := t.sender.worker.step(func(r *rooms) error {
		if !r.begin(t.sender.room, t.target, boottime()) {
			return errNotNow
		}
		return nil
	}); err != nil {
		return nil, false
	}
	return &Write{target: t}, true
}

// errNotNow: nothing may be written now.
var errNotNow = errors.New("not now")

// Complete says that all of the offer is written. With the last receiver's the room succeeds for this worker, and its
// receivers are told. Nothing if the room has been asked to end.
//
// Errors: [ErrInvalidField] if a write is under way.
func (t *Target) Complete() error {
	return t.sender.worker.step(func(r *rooms) error { return r.complete(t.sender.room, t.target) })
}

// Write is a piece that was handed to the data plane. To be ended by Done or by Failed: until then the source pages do
// not come back. What is said of it after its end counts for nothing.
type Write struct {
	target *Target
	moved  int64
	ended  bool
}

// Progress tells the bytes moved so far: a long write without any is taken for stuck.
func (w *Write) Progress(moved int64) {
	w.target.sender.worker.event(func(r *rooms) { w.add(r, moved) })
}

// Done: every byte that was handed over is written, and nothing is in flight.
func (w *Write) Done(moved int64) {
	w.end(moved, nil)
}

// Failed: the write ended badly, and bytes of it may still land. The room is asked to end.
func (w *Write) Failed(moved int64, reason pb.FailureReason, message string) {
	w.end(moved, &Failure{Reason: reason, Message: message, WorkerID: w.target.target.peer.GetWorkerId()})
}

func (w *Write) end(moved int64, failure *Failure) {
	w.target.sender.worker.event(func(r *rooms) {
		w.add(r, moved)
		if !w.ended {
			w.ended = true
			r.ended(w.target.sender.room, w.target.target, failure)
		}
	})
}

func (w *Write) add(r *rooms, moved int64) {
	if !w.ended && moved > w.moved {
		r.wrote(w.target.sender.room, w.target.target, moved-w.moved)
		w.moved = moved
	}
}
