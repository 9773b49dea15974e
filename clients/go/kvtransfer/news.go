package kvtransfer

import (
	"log/slog"
	"time"

	pb "github.com/kvtransfer/kvtransfer/clients/go/kvtransfer/v1"
)

// received takes a message of the service. Completions and offers count before the updates that came with them.
func (r *rooms) received(news *pb.SessionResponse, now time.Duration) {
	if sentAt, ok := r.out.applied(news.GetAppliedBatch()); ok && news.GetLeaseTtl() != nil {
		r.fenceAt = max(r.fenceAt, r.fence(sentAt, news.GetLeaseTtl()))
	}
	for _, change := range news.GetPeers() {
		r.roster.changed(change)
	}
	for _, completion := range news.GetCompletions() {
		r.completed(completion)
	}
	for _, offers := range news.GetOffers() {
		r.offered(offers)
	}
	for _, update := range news.GetRooms() {
		r.updated(update)
	}
	for _, release := range news.GetReleases() {
		r.releaseTold(release, now)
	}
	for _, refused := range news.GetErrors() {
		r.itemRefused(refused)
	}
}

func (r *rooms) offered(offers *pb.RoomOffers) {
	room := r.held[offers.GetRoom()]
	if room == nil || room.sender == nil || room.ending() {
		return
	}
	if misfit := room.sender.takeOffers(offers.GetOffers()); misfit != "" {
		r.mismatch(room, misfit, r.workerID)
	}
}

func (r *rooms) updated(update *pb.RoomUpdate) {
	room := r.held[update.GetRoom()]
	if room == nil || room.joinID != update.GetJoinId() {
		// The service tells of a join that this worker does not hold: it is over.
		key := joinKey{update.GetRoom(), update.GetJoinId()}
		r.orphans[key] = true
		r.out.cleanup(key)
		return
	}
	room.update(update)
	if room.sender != nil {
		if update.GetConfirmed() {
			room.sender.confirmed = r.epoch
		}
		if room.ending() {
			r.stop(room)
		}
		return
	}
	if len(update.GetSenders()) > 0 {
		room.receiver.senders = update.GetSenders()
	}
	r.evaluate(room)
	asked := room.failure != nil || Final(room.roomPoll)
	if asked && !Final(room.poll) && !room.receiver.draining {
		room.receiver.draining = true
		r.nextDrain++
		r.drains[r.nextDrain] = room
		r.emit(drain{r.nextDrain})
	}
}

func (r *rooms) releaseTold(release *pb.Release, now time.Duration) {
	key := joinKey{release.GetRoom(), release.GetJoinId()}
	delete(r.orphans, key)
	room := r.held[release.GetRoom()]
	if room == nil || room.key() != key || !room.closing {
		return
	}
	room.release = release
	if room.sender != nil {
		r.forget(room)
		return
	}
	// A join that a restarted service does not know is free all the same, if its senders have completed it.
	proven := release.GetState() == pb.Release_STATE_UNKNOWN && room.poll == pollSuccess
	switch {
	case (proven || release.GetState() == pb.Release_STATE_FREE) && !room.receiver.free:
		room.receiver.free, room.receiver.freeAt = true, now
		if room.poll != pollSuccess && room.receiver.destination != nil {
			room.receiver.freeAt += r.policy.settle // any end but a Completion may leave bytes in sockets
		}
		r.settle(room, now)
	case release.GetState() == pb.Release_STATE_QUARANTINED && !room.receiver.held:
		room.receiver.held = true
		slog.Warn("kvtransfer: pages stay held: a worker went without proof that its writes are over; name its process in "+
			"exited_instances of its successor once it has exited", "room", room.Room, "worker", release.GetWaitingFor())
	}
}

func (r *rooms) itemRefused(refused *pb.ItemError) {
	room := r.held[refused.GetRoom()]
	if room == nil {
		return
	}
	err := fromStatus(refused.GetError())
	if refused.GetKind() == pb.ItemError_KIND_CLEANUP {
		if room.sender != nil {
			r.forget(room)
		}
		return
	}
	r.fail(room, &Failure{
		Reason: pb.FailureReason_FAILURE_REASON_WORKER_REPORTED, Message: err.Error(), WorkerID: r.workerID, Refused: err,
	})
	if !room.accepted {
		room.roomPoll = pollFailed
	}
}
