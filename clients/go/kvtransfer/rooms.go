package kvtransfer

import (
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// policy has the protocol's durations.
type policy struct {
	fenceMargin time.Duration // a worker is fenced that much before its lease ends; or a third of the lease, if that is less
	settle      time.Duration // for which pages wait after an end that leaves bytes in sockets
	giveUp      time.Duration // after which a worker ends a room by itself: above the service's own limit
}

var defaultPolicy = policy{fenceMargin: 2 * time.Second, settle: time.Second, giveUp: 930 * time.Second}

// Released are pages and slots that the engine owns again.
type Released struct {
	Room int64
	// Pages and Slots as they were offered; a sender knows its own.
	Pages map[string][]int32
	Slots map[string]int32
	// Presumed is true if it rests on time passed, not on proof.
	Presumed bool
}

// rooms is a worker's side of the protocol: events in, actions out. Pure and synchronous: no gRPC, no clock, no
// goroutine. Events are the engine's calls, the service's messages, what the data plane tells, and now, on
// CLOCK_BOOTTIME. After each event actions holds what is to be done, in order. Not safe for concurrent use.
type rooms struct {
	policy     policy
	layout     *pb.Layout
	workerID   string
	epoch      int64
	birthEpoch int64
	fenced     bool // until registered, and once the lease has lapsed
	undrained  bool // a write ended with bytes that may still land
	died       *Failure
	out        outgoing
	roster     roster
	actions    []action
	released   []Released

	fenceAt   time.Duration
	held      map[int64]*room
	orphans   map[joinKey]bool // joins that the service told of and this worker does not hold
	drains    map[uint64]*room
	nextDrain uint64
}

func newRooms(layout *pb.Layout, p policy) *rooms {
	r := &rooms{
		policy:  p,
		layout:  layout,
		fenced:  true,
		held:    map[int64]*room{},
		orphans: map[joinKey]bool{},
		drains:  map[uint64]*room{},
	}
	r.out.build = builders{r.buildJoin, r.buildProgress, r.buildCleanup}
	r.roster = roster{peers: map[string]*peerState{}, emit: r.emit}
	return r
}

func (r *rooms) emit(wanted action) {
	r.actions = append(r.actions, wanted)
}

// all returns the rooms in the order of their numbers.
func (r *rooms) all() []*room {
	all := make([]*room, 0, len(r.held))
	for _, number := range slices.Sorted(maps.Keys(r.held)) {
		all = append(all, r.held[number])
	}
	return all
}

// --- the engine's calls ---

// open joins a room, whose number must not be in use here.
func (r *rooms) open(room *room, now time.Duration) {
	room.poll, room.roomPoll = pollBootstrap, pollBootstrap
	room.deadline = now + r.policy.giveUp
	r.held[room.Room] = room
	r.out.join(room.key())
	if r.died != nil {
		r.fail(room, r.died)
	}
}

func (r *rooms) offer(room *room, destination Destination) error {
	if room.closing { // its pages may have gone back already
		return invalidField("room", "%d is closed", room.Room)
	}
	if room.receiver.destination != nil {
		return invalidField("offer", "of room %d was made already", room.Room)
	}
	wanted, err := destination.wire(r.layout)
	if err != nil {
		return err
	}
	room.receiver.destination, room.receiver.offered = wanted, destination
	if !Final(room.poll) {
		r.out.join(room.key())
	}
	return nil
}

func (r *rooms) abort(room *room, message string) {
	r.fail(room, &Failure{Reason: pb.FailureReason_FAILURE_REASON_ABORTED, Message: message, WorkerID: r.workerID})
}

// close releases this worker's part, once its writes have ended.
func (r *rooms) close(room *room) {
	if room.closing {
		return
	}
	r.abort(room, "closed before the end")
	room.closing = true
	switch {
	case room.sender != nil:
		r.releaseSender(room)
	case !room.sent && r.epoch == 0: // nobody can have heard of it
		r.handBack(room, false)
		r.forget(room)
	default:
		r.out.cleanup(room.key())
	}
}

// begin asks whether a piece may be handed to the data plane now: the lease holds, the room is confirmed, all receivers
// have offered, and nobody asked it to end. If so a write is under way.
func (r *rooms) begin(room *room, target *target, now time.Duration) bool {
	r.checkFence(now)
	ready := room.poll == pollWaiting || room.poll == pollTransferring
	if !ready || room.ending() || r.fenced || room.sender.confirmed != r.epoch || target.completion != nil {
		return false
	}
	target.writing++
	if room.poll == pollWaiting {
		room.advance(pollTransferring)
		r.out.progress(room.key())
	}
	return true
}

// wrote: a write has moved that many bytes more.
func (r *rooms) wrote(room *room, target *target, bytes int64) {
	target.moved += bytes
	r.out.progress(room.key())
}

// ended: a write is over, badly if there is a failure: then bytes of it may still land.
func (r *rooms) ended(room *room, target *target, failure *Failure) {
	target.writing--
	if failure != nil {
		room.sender.drained, r.undrained = false, true
		r.fail(room, failure)
	}
	if room.closing {
		r.releaseSender(room)
	}
}

// complete: all of a target's offer is written.
func (r *rooms) complete(room *room, target *target) error {
	ready := room.poll == pollWaiting || room.poll == pollTransferring
	switch {
	case target.writing > 0:
		return invalidField("target", "%s has %d writes under way", target.peer.GetWorkerId(), target.writing)
	case !ready || room.ending() || target.completion != nil:
		return nil // it was told, or the room ends: too late
	}
	target.complete(room, r.workerID)
	if !room.sender.served() {
		return nil
	}
	for _, served := range room.sender.targets {
		r.emit(notify{served.peer.GetInstanceId(), notification(served.completion)})
	}
	room.advance(pollSuccess)
	r.out.progress(room.key())
	return nil
}

func (r *rooms) takeReleased() []Released {
	released := r.released
	r.released = nil
	return released
}

func (r *rooms) takeActions() []action {
	actions := r.actions
	r.actions = nil
	return actions
}

// writing: some write has not ended.
func (r *rooms) writing() bool {
	for _, room := range r.held {
		if room.sender != nil && room.sender.writing() > 0 {
			return true
		}
	}
	return false
}

// --- registration and session ---

// states lists the joins ever sent: a sender's until its Cleanup is acknowledged, a receiver's until its pages went
// back.
func (r *rooms) states(now time.Duration) []*pb.RoomState {
	var states []*pb.RoomState
	for _, room := range r.all() {
		if room.sent {
			states = append(states, room.stateMessage(now))
		}
	}
	return states
}

// registered: a new epoch. All rooms are told again, and written in only once they are confirmed.
func (r *rooms) registered(answer *pb.RegisterWorkerResponse, sentAt time.Duration) {
	r.workerID = answer.GetWorker().GetWorkerId()
	r.epoch = answer.GetWorker().GetEpoch()
	r.birthEpoch = answer.GetBirthEpoch()
	r.fenced = false
	r.fenceAt = r.fence(sentAt, answer.GetLeaseTtl())
	r.out.newStream()
	for _, room := range r.all() {
		switch {
		case room.closing && (room.sender == nil || room.sender.writing() == 0):
			r.out.cleanup(room.key())
		case Final(room.poll):
			r.out.progress(room.key())
		default:
			r.out.join(room.key())
		}
	}
}

// streamOpened: what was not applied on the stream before is sent again, and what is held is asked about.
func (r *rooms) streamOpened() {
	r.out.newStream()
	for _, room := range r.all() {
		if room.sender != nil && room.sender.back || room.receiver != nil && room.closing && !room.receiver.free {
			r.out.cleanup(room.key())
		}
	}
}

// --- what the data plane tells ---

// notified takes the payload of a notification; those that are not ours are left alone.
func (r *rooms) notified(payload []byte) {
	body, ours := strings.CutPrefix(string(payload), notificationPrefix)
	told := &pb.Notification{}
	if !ours || proto.Unmarshal([]byte(body), told) != nil {
		return
	}
	if told.GetCompletion() != nil {
		r.completed(told.GetCompletion())
	}
}

// drained: all that had arrived is consumed. The receiver answers, once.
func (r *rooms) drained(token uint64) {
	room := r.drains[token]
	if room == nil {
		return
	}
	delete(r.drains, token)
	r.evaluate(room)
	cause := room.failure
	if cause == nil {
		cause = &Failure{Reason: pb.FailureReason_FAILURE_REASON_ABORTED, Message: "the room ended"}
	}
	r.fail(room, cause)
}

// giveUp: this worker can never serve again.
func (r *rooms) giveUp(why string) {
	r.died = &Failure{
		Reason: pb.FailureReason_FAILURE_REASON_WORKER_REPORTED, Message: why, WorkerID: r.workerID,
	}
	for _, room := range r.all() {
		r.fail(room, r.died)
	}
}

// --- time ---

// tick looks at what time alone brings about.
func (r *rooms) tick(now time.Duration) {
	r.checkFence(now)
	r.roster.tick(now)
	for _, room := range r.all() {
		if now >= room.deadline && !Final(room.poll) {
			r.fail(room, &Failure{
				Reason:   pb.FailureReason_FAILURE_REASON_TRANSFER_TIMEOUT,
				Message:  "not ended " + r.policy.giveUp.String() + " after the join, and the service did not end it",
				WorkerID: r.workerID,
			})
		}
		if room.receiver != nil && room.receiver.free {
			r.settle(room, now)
		}
	}
}

// stopWriting: fenced. What is under way goes to its end, nothing more is handed over.
func (r *rooms) stopWriting() {
	for _, room := range r.all() {
		if room.sender != nil {
			r.stop(room)
		}
	}
}

// fence is when a lease that was asked for at sentAt must be taken for over.
func (r *rooms) fence(sentAt time.Duration, granted *durationpb.Duration) time.Duration {
	lease := granted.AsDuration()
	return sentAt + lease - min(r.policy.fenceMargin, lease/3)
}

func (r *rooms) checkFence(now time.Duration) {
	if now >= r.fenceAt {
		r.fenced = true
	}
}

// --- inside ---

func (r *rooms) stop(room *room) {
	if room.sender.writing() > 0 {
		r.emit(cancel{room.Room})
	}
}

func (r *rooms) completed(completion *pb.Completion) {
	room := r.held[completion.GetRoom()]
	if room != nil && room.receiver != nil && room.take(completion, r.workerID) {
		r.evaluate(room)
	}
}

// evaluate finds success, once a completion of each sender covers the offer.
func (r *rooms) evaluate(room *room) {
	if Final(room.poll) || room.receiver.destination == nil || !room.receiver.holdsAll() {
		return
	}
	if sender, problem := room.receiver.uncovered(r.roster.movedGroups); problem != "" {
		r.mismatch(room, problem, sender)
		return
	}
	room.advance(pollSuccess)
	r.out.progress(room.key())
}

func (r *rooms) mismatch(room *room, problem, worker string) {
	r.fail(room, &Failure{
		Reason: pb.FailureReason_FAILURE_REASON_COMPLETION_MISMATCH, Message: problem, WorkerID: worker,
	})
}

// fail ends this worker's part and reports it. Nothing if it had ended.
func (r *rooms) fail(room *room, failure *Failure) {
	if !room.fail(failure) {
		return
	}
	if !room.closing {
		r.out.progress(room.key())
	}
	if room.sender != nil {
		r.stop(room)
	}
}

// releaseSender hands a sender's pages back once its writes have ended, and tells the service.
func (r *rooms) releaseSender(room *room) {
	if room.sender.writing() > 0 || room.sender.back {
		return
	}
	room.sender.back = true
	r.handBack(room, false)
	if room.sent || r.epoch != 0 {
		r.out.cleanup(room.key())
	} else { // nobody can have heard of it
		r.forget(room)
	}
}

// settle hands a receiver's pages back once its settle time is over.
func (r *rooms) settle(room *room, now time.Duration) {
	if now >= room.receiver.freeAt {
		r.handBack(room, room.release.GetPresumed())
		r.forget(room)
	}
}

func (r *rooms) handBack(room *room, presumed bool) {
	back := Released{Room: room.Room, Presumed: presumed}
	if room.receiver != nil {
		back.Pages, back.Slots = room.receiver.offered.Pages, room.receiver.offered.Slots
	}
	r.released = append(r.released, back)
}

func (r *rooms) forget(room *room) {
	delete(r.held, room.Room)
	r.out.drop(room.key())
}

// --- building messages ---

func (r *rooms) of(key joinKey) *room {
	if room := r.held[key.room]; room != nil && room.key() == key {
		return room
	}
	return nil
}

func (r *rooms) buildJoin(key joinKey) *pb.Join {
	room := r.of(key)
	if room == nil {
		return nil
	}
	room.sent = true
	return room.joinMessage()
}

func (r *rooms) buildProgress(key joinKey) *pb.Progress {
	if room := r.of(key); room != nil {
		return room.progressMessage()
	}
	return nil
}

func (r *rooms) buildCleanup(key joinKey) *pb.CleanupItem {
	if room := r.of(key); room != nil {
		return room.cleanupMessage()
	}
	if r.orphans[key] {
		return &pb.CleanupItem{Room: key.room, JoinId: key.joinID, Drained: true}
	}
	return nil
}
