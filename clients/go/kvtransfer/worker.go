package kvtransfer

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

const (
	// maxRooms of a worker at once: what it tells when it registers again must stay under 3 MiB.
	maxRooms = 8192
	// maxRegistrationBytes are a registration's without its rooms: together they must fit a message of 4 MiB.
	maxRegistrationBytes = 1 << 20
	// tickEvery is the longest time between two looks at what time alone brings about.
	tickEvery = 250 * time.Millisecond
)

// Worker is one rank of an engine, in this process, as the service and its peers see it. It registers by itself, however
// long that takes, keeps its lease and its session, and comes back after a break; see [StartWorker].
//
// Nothing but [Worker.Ready], [Worker.Close] and the Wait methods waits for the network: calls leave a mark, what is read
// is what is known here. Any number of goroutines may use it at once.
type Worker struct {
	client       *Client
	registration *pb.RegisterWorkerRequest
	plane        DataPlane

	mu      sync.Mutex
	rooms   *rooms
	ref     *pb.WorkerRef // nil until registered
	lease   time.Duration
	open    bool          // the stream has answered since it was opened
	fatal   error         // why this worker can never serve
	changed chan struct{} // closed, and another put in its place, at each change

	wake   chan struct{}   // there is something to send
	ctx    context.Context // until Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// StartWorker starts to register a worker, and keeps it registered until [Worker.Close].
//
// The registration says who it is and what memory it lends: engine_id, role, topology, rank, layout, nixl_metadata, and
// what else is wanted. Without topology and rank the engine has but this one. The worker itself sees to birth_epoch and
// rooms, and draws an instance_id if there is none. Plane moves the bytes; nil if the caller does.
//
// Errors: [ErrInvalidField], for what needs no service to be seen. What the service refuses is told by [Worker.Ready].
func StartWorker(client *Client, registration *pb.RegisterWorkerRequest, plane DataPlane) (*Worker, error) {
	own := copyOf(registration)
	if own.GetInstanceId() == "" {
		own.InstanceId = newUUID()
	}
	if own.GetTopology() == nil && own.GetRank() == nil {
		own.Topology, own.Rank = &pb.Topology{TpSize: 1, PpSize: 1, DpSize: 1}, &pb.Rank{}
	}
	if err := checkRegistration(own); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &Worker{
		client:       client,
		registration: own,
		plane:        plane,
		rooms:        newRooms(own.GetLayout(), defaultPolicy),
		changed:      make(chan struct{}),
		wake:         make(chan struct{}, 1),
		ctx:          ctx,
		cancel:       cancel,
	}
	w.tasks.Go(func() { w.keep(ctx) })
	w.tasks.Go(func() { w.tick(ctx) })
	return w, nil
}

func checkRegistration(said *pb.RegisterWorkerRequest) error {
	if said.GetRole() != pb.Role_ROLE_PREFILL && said.GetRole() != pb.Role_ROLE_DECODE {
		return invalidField("role", "must be prefill or decode, got %s", said.GetRole())
	}
	if said.GetLayout() == nil {
		return invalidField("layout", "must be set")
	}
	if said.GetBirthEpoch() != 0 {
		return invalidField("birth_epoch", "is the worker's own, got %d", said.GetBirthEpoch())
	}
	if len(said.GetRooms()) > 0 {
		return invalidField("rooms", "are the worker's own, got %d", len(said.GetRooms()))
	}
	if asked := said.GetLeaseTtl(); asked != nil {
		if err := checkSpan("lease_ttl", asked); err != nil {
			return err
		}
	}
	wire, err := proto.Marshal(said)
	if err != nil {
		return invalidField("registration", "cannot be sent: %v", err)
	}
	if len(wire) > maxRegistrationBytes {
		return invalidField("registration", "must take at most %d bytes, got %d", maxRegistrationBytes, len(wire))
	}
	return nil
}

// InstanceID names this process, and its NIXL agent.
func (w *Worker) InstanceID() string {
	return w.registration.GetInstanceId()
}

// Ready waits until the worker is registered and its session is open. It fails if the worker never can be: with
// [ErrStaleEpoch] if a process born later has its rank, [ErrInvalidField] if its registration is not acceptable.
func (w *Worker) Ready(ctx context.Context) error {
	return w.Wait(ctx, func() bool { return w.Open() })
}

// Open tells whether the worker is registered and its session has answered.
func (w *Worker) Open() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open && !w.rooms.fenced
}

// Ref is the present registration; nil before the first.
func (w *Worker) Ref() *pb.WorkerRef {
	w.mu.Lock()
	defer w.mu.Unlock()
	return proto.CloneOf(w.ref)
}

// Err is why this worker can never serve again; nil while it can.
func (w *Worker) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fatal
}

// Peers returns the processes of the other side whose links with this worker are known, ordered by worker.
func (w *Worker) Peers() []Peer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rooms.roster.known()
}

// Released returns the pages and slots that came back since the last call; each once. There is no other way back for
// them.
func (w *Worker) Released() []Released {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rooms.takeReleased()
}

// Changed is closed when something of the worker, or of one of its rooms, has changed. Ask for it before looking at what
// may change.
func (w *Worker) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// Wait returns once a condition holds, which is looked at after each change of the worker or its rooms. It fails when
// ctx ends, and when the worker can never serve again.
func (w *Worker) Wait(ctx context.Context, condition func() bool) error {
	for {
		changed := w.Changed()
		if condition() {
			return nil
		}
		if err := w.Err(); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}

// Sender joins a room as a prefill worker, for a request of so many tokens.
//
// Errors: [ErrInvalidField], [ErrRoomReused] (the room is open here), [ErrLimitReached], [ErrClosed] and others of
// [Worker.Err].
func (w *Worker) Sender(join Join, tokens int32) (*Sender, error) {
	if tokens < 1 {
		return nil, invalidField("tokens", "must be at least 1, got %d", tokens)
	}
	joined := &room{Join: join, sender: &senderSide{tokens: tokens, drained: true}}
	if err := w.join(joined, pb.Role_ROLE_PREFILL); err != nil {
		return nil, err
	}
	return &Sender{handle{w, joined}}, nil
}

// Receiver joins a room as a decode worker, to receive from a prefill engine, which join names. Errors as of Sender.
func (w *Worker) Receiver(join Join) (*Receiver, error) {
	if join.PeerEngine == "" {
		return nil, invalidField("peer_engine", "must be named by a receiver")
	}
	joined := &room{Join: join, receiver: &receiverSide{}}
	if err := w.join(joined, pb.Role_ROLE_DECODE); err != nil {
		return nil, err
	}
	return &Receiver{handle{w, joined}}, nil
}

func (w *Worker) join(joined *room, role pb.Role) error {
	if err := joined.check(); err != nil {
		return err
	}
	if w.registration.GetRole() != role {
		return invalidField("role", "must be %s, this worker's is %s", role, w.registration.GetRole())
	}
	joined.joinID = newJoinID()
	joined.Timeouts = proto.CloneOf(joined.Timeouts)
	return w.step(func(r *rooms) error {
		switch {
		case w.fatal != nil:
			return w.fatal
		case r.held[joined.Room] != nil:
			return &Error{
				Reason: pb.ErrorReason_ERROR_REASON_ROOM_REUSED, Code: codes.AlreadyExists,
				Message: fmt.Sprintf("room %d is open in this worker", joined.Room),
			}
		case len(r.held) >= maxRooms:
			return &Error{
				Reason: pb.ErrorReason_ERROR_REASON_LIMIT_REACHED, Code: codes.ResourceExhausted,
				Message: fmt.Sprintf("%d rooms are open in this worker", maxRooms),
			}
		}
		r.open(joined, boottime())
		return nil
	})
}

// SetDraining tells routers to send this worker's engine no new rooms, or that they may again. Rooms that are open go on,
// and joins are still accepted. It holds until the next call, also over new registrations, and may come before the first.
func (w *Worker) SetDraining(draining bool) {
	w.event(func(r *rooms) { r.out.drain(draining) })
}

// Notified takes a NIXL notification of a data plane's; others than ours are left alone.
func (w *Worker) Notified(payload []byte) {
	w.event(func(r *rooms) { r.notified(payload) })
}

// Drained is a data plane's answer to Drain.
func (w *Worker) Drained(token uint64) {
	w.event(func(r *rooms) { r.drained(token) })
}

// Close closes the rooms that are open, waits until ctx ends for their writes to end and their pages to come back,
// deregisters, and ends the worker's goroutines. Pages that are not back by then never are: their memory must stay as it
// is, or go with the process. It fails with ctx's error if some were not.
func (w *Worker) Close(ctx context.Context) error {
	w.event(func(r *rooms) {
		for _, room := range r.all() {
			r.close(room)
		}
	})
	err := w.Wait(ctx, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.rooms.held) == 0
	})
	w.cancel()
	w.tasks.Wait()
	w.deregister()
	w.event(func(*rooms) {
		if w.fatal == nil {
			w.fatal = ErrClosed
		}
	})
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil // one that can never serve has ended as well as it could
}

// step is one event: what it brings about has been handed over when it returns. One that is refused changes nothing.
func (w *Worker) step(event func(*rooms) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := event(w.rooms)
	for actions := w.rooms.takeActions(); len(actions) > 0; actions = w.rooms.takeActions() {
		for _, wanted := range actions {
			w.dispatch(wanted)
		}
	}
	if err == nil {
		close(w.changed)
		w.changed = make(chan struct{})
	}
	if w.rooms.out.pending() || w.rooms.fenced {
		select {
		case w.wake <- struct{}{}:
		default: // it is awake
		}
	}
	return err
}

func (w *Worker) event(event func(*rooms)) {
	_ = w.step(func(r *rooms) error {
		event(r)
		return nil
	})
}

func (w *Worker) dispatch(wanted action) {
	if fetch, ok := wanted.(fetchLinks); ok {
		w.fetchLinks(fetch.change)
		return
	}
	if w.plane != nil {
		perform(wanted, w.plane)
		return
	}
	if drain, ok := wanted.(drain); ok {
		w.rooms.drained(drain.token) // no notification can have arrived
	}
}

// tick tells the time.
func (w *Worker) tick(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.event(func(r *rooms) { r.tick(boottime()) })
		case <-ctx.Done():
			return
		}
	}
}

// newJoinID draws a number other than 0.
func newJoinID() uint64 {
	var drawn [8]byte
	_, _ = rand.Read(drawn[:]) // never fails
	return max(1, binary.LittleEndian.Uint64(drawn[:]))
}

// newUUID draws a random UUID, of version 4.
func newUUID() string {
	var drawn [16]byte
	_, _ = rand.Read(drawn[:]) // never fails
	drawn[6], drawn[8] = drawn[6]&0x0f|0x40, drawn[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", drawn[:4], drawn[4:6], drawn[6:8], drawn[8:10], drawn[10:])
}
