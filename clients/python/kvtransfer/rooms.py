"""A worker's side of the protocol: events in, actions out.

Pure and synchronous, like the server's domain: no NIXL, no gRPC, no clock. Events are the engine's calls, the service's
messages, what the mover tells, and `now` (seconds on CLOCK_BOOTTIME). After each event `take_actions` holds what is to
be done, in order.
"""

import logging
from collections import deque
from collections.abc import Mapping, Sequence

from google.protobuf.message import DecodeError

from kvtransfer import v1 as pb
from kvtransfer.actions import Action, Cancel, Drain, Notify, Outcome, Post, completion_notification
from kvtransfer.counters import Counters
from kvtransfer.fence import Fence
from kvtransfer.layout import LocalMemory
from kvtransfer.outgoing import Builders, JoinKey, Outgoing
from kvtransfer.pacing import Pacing
from kvtransfer.policy import Policy
from kvtransfer.polls import Failure, KVPoll, Released
from kvtransfer.receiving import ReceiverRoom
from kvtransfer.roster import FetchLinks, Roster
from kvtransfer.sending import SenderRoom, Target

log = logging.getLogger("kvtransfer")

GIVE_UP = 930.0
"""Seconds after which a worker gives a room up by itself: above the service's `total`, should that be out of reach."""


WorkerRooms = dict[int, SenderRoom | ReceiverRoom]


class Rooms:
    """All joins of one worker. Not thread-safe: one lock around it is the shell's."""

    def __init__(self, memory: LocalMemory, policy: Policy) -> None:
        self.worker_id = ""
        self.epoch = 0
        self.birth_epoch = 0
        self.died = ""  # why this worker cannot serve any more, if so
        self.undrained = False  # a post ended with bytes that may still land
        self.rooms: WorkerRooms = {}
        self.counters = Counters()
        self.outgoing = Outgoing(Builders(self._build_join, self._build_progress, self._build_cleanup))
        self._memory = memory
        self._settle_time = policy.settle
        self._fence = Fence(policy.fence_margin)
        self._actions: list[Action | FetchLinks] = []
        self.roster = Roster(self._actions)
        self._released: deque[Released] = deque()
        self._posts: dict[int, SenderRoom] = {}
        self._drains: dict[int, ReceiverRoom] = {}
        self._settling: dict[int, ReceiverRoom] = {}
        self._orphans: set[JoinKey] = set()
        self._next_post = 0
        self._next_drain = 0
        self.pacing = Pacing(self._actions)

    # --- the engine's calls ---

    def open(self, room: SenderRoom | ReceiverRoom) -> None:
        """Joins a room. Its number must not be in use here."""
        room.deadline = room.joined_at + GIVE_UP
        self.rooms[room.room] = room
        # Nobody waits for a receiver before its offer, which follows at once as a rule, and then goes along.
        self.outgoing.join(room.key, urgent=isinstance(room, SenderRoom))
        if self.died:
            self._fail(room, Failure("WORKER_REPORTED", self.died, self.worker_id))

    def send(
        self,
        room: SenderRoom,
        pages: Mapping[str, Sequence[int]],
        tokens: int | None,
        slots: Mapping[str, int],
        ready: object | None,
        last: bool,
        now: float,
    ) -> None:
        """Takes a chunk. Raises InvalidField."""
        room.check_open()
        room.add_chunk(self._memory, pages, tokens, slots, ready, last)
        self._pump(room, now)

    def offer(
        self,
        room: ReceiverRoom,
        tokens: int,
        pages: Mapping[str, Sequence[int]],
        slots: Mapping[str, int],
        prefix_tokens: int,
        now: float,
    ) -> None:
        """Names a receiver's pages. Raises InvalidField."""
        room.check_open()
        room.offer(self._memory, tokens, pages, slots, prefix_tokens)
        if not room.poll.final:
            self.outgoing.join(room.key)
            self.pacing.offered(room.room, now)
        self.pacing.update(now)

    def abort(self, room: SenderRoom | ReceiverRoom, message: str, now: float) -> None:
        """Asks the room to end."""
        self._fail(room, Failure("ABORTED", message, self.worker_id))
        self.pacing.update(now)

    def close(self, room: SenderRoom | ReceiverRoom, now: float) -> None:
        """Releases this worker's part, once its posts have ended."""
        if room.closing:
            return
        self._fail(room, Failure("ABORTED", "closed before the end", self.worker_id))
        room.closing = True
        if isinstance(room, SenderRoom):
            self._release_sender(room)
        elif not room.sent and not self.epoch:  # nobody can have heard of it
            self._forget(room)
            self._hand_back(room)
        else:
            self.outgoing.cleanup(room.key)
        self.pacing.update(now)

    def take_released(self) -> list[Released]:
        """Pages that went back to the engine since the last call; each once."""
        released = list(self._released)
        self._released.clear()
        return released

    def take_actions(self) -> list[Action | FetchLinks]:
        """What is to be done since the last call, in order."""
        actions = self._actions.copy()
        self._actions.clear()
        return actions

    # --- registration and session ---

    def room_states(self, now: float) -> list[pb.RoomState]:
        """Joins ever sent: a sender's until its Cleanup is acknowledged, a receiver's until its pages went back."""
        return [room.state_message(now) for room in self.rooms.values() if room.sent]

    def registered(self, answer: pb.RegisterWorkerResponse, sent_at: float, now: float) -> None:
        """A new epoch: all rooms are told again, and posted in only once they are confirmed."""
        self.worker_id = answer.worker.worker_id
        self.epoch = answer.worker.epoch
        self.birth_epoch = answer.birth_epoch
        self._fence.registered(sent_at, answer.lease_ttl)
        self.roster.registered(sent_at)
        self.outgoing.new_stream()
        for room in self.rooms.values():
            if room.closing and (not isinstance(room, SenderRoom) or not room.posts):
                self.outgoing.cleanup(room.key)
            elif room.poll.final:
                self.outgoing.progress(room.key, urgent=True)
            else:
                self.outgoing.join(room.key)

    def stream_opened(self) -> None:
        """A new stream under the same epoch: what was not applied is sent again, and what is held is asked about."""
        self.outgoing.new_stream()
        for room in self.rooms.values():
            waits = room.handed_back if isinstance(room, SenderRoom) else room.closing and room.free_at is None
            if waits:  # for its release, which may have been lost though its Cleanup was acknowledged
                self.outgoing.cleanup(room.key)

    def batch(self, now: float) -> pb.SessionRequest:
        """The next batch for the stream."""
        return self.outgoing.take(now)

    def received(self, news: pb.SessionResponse, now: float) -> None:
        """A message of the service. Completions and offers count before the updates that came with them."""
        sent_at = self.outgoing.applied(news.applied_batch)
        if sent_at is not None and news.HasField("lease_ttl"):
            self._fence.extend(sent_at, news.lease_ttl)
        for change in news.peers:
            self.roster.changed(change)
        for completion in news.completions:
            self._completed(completion)
        for offers in news.offers:
            self._offered(offers)
        for update in news.rooms:
            self._updated(update, now)
        for release in news.releases:
            self._release_told(release, now)
        for error in news.errors:
            self._refused(error, now)
        self.pacing.update(now)

    def links_fetched(self, change: pb.PeerChange, answer: pb.GetLinksResponse, now: float) -> None:
        """The answer to FetchLinks."""
        self.roster.links_fetched(change, answer)
        for room in list(self.rooms.values()):
            if isinstance(room, SenderRoom):
                self._pump(room, now)

    def _offered(self, offers: pb.RoomOffers) -> None:
        room = self.rooms.get(offers.room)
        if not isinstance(room, SenderRoom) or room.ending:
            return
        misfit = room.take_offers(offers)
        if misfit is not None:
            self._fail(room, Failure("COMPLETION_MISMATCH", misfit, self.worker_id))

    def _updated(self, update: pb.RoomUpdate, now: float) -> None:
        room = self.rooms.get(update.room)
        if room is None or room.join_id != update.join_id:
            self._orphan(update.room, update.join_id)
            return
        room.update(update)
        if isinstance(room, SenderRoom):
            if update.confirmed:
                room.confirmed_epoch = self.epoch
            if room.ending:
                self._stop(room)
            else:
                self._pump(room, now)
            return
        room.senders = {peer.worker_id: peer.instance_id for peer in update.senders} or room.senders
        if room.poll is KVPoll.TRANSFERRING:
            self.pacing.moving(room.room)
        self._evaluate(room)
        if (room.failure is not None or room.room_poll.final) and not room.poll.final and not room.draining:
            room.draining = True
            self._next_drain += 1
            self._drains[self._next_drain] = room
            self._actions.append(Drain(self._next_drain))

    def _orphan(self, number: int, join_id: int) -> None:
        """The service tells of a join that this worker does not hold: it is over."""
        self.counters.orphan_cleanups += 1
        self._orphans.add((number, join_id))
        self.outgoing.cleanup((number, join_id))

    def _release_told(self, release: pb.Release, now: float) -> None:
        key = (release.room, release.join_id)
        self._orphans.discard(key)
        room = self.rooms.get(release.room)
        if room is None or room.key != key or not room.closing:
            return
        if isinstance(room, SenderRoom):
            self._forget(room)
        elif room.take_release(release, now, self._settle_time):
            self._settling[room.room] = room
            self._settle(now)

    def _refused(self, error: pb.ItemError, now: float) -> None:
        reason, _, message = error.error.message.partition(": ")
        room = self.rooms.get(error.room)
        if room is None:
            return
        if error.kind == pb.ItemError.KIND_CLEANUP:
            log.warning("room %d: cleanup refused: %s", error.room, error.error.message)
            if isinstance(room, SenderRoom):
                self._forget(room)
            return
        self._fail(room, Failure(reason, message or error.error.message))
        if not room.accepted:
            room.room_poll = KVPoll.FAILED

    # --- what the mover tells ---

    def post_progress(self, post_id: int, moved: int) -> None:
        """Part of a post is written."""
        room = self._posts.get(post_id)
        if room is not None:
            room.partial[post_id] = moved
            self.outgoing.progress(room.key, urgent=False)

    def post_ended(
        self, post_id: int, outcome: Outcome, moved: int, error: str, disconnected: bool, now: float
    ) -> None:
        room = self._posts.pop(post_id, None)
        if room is None:
            return
        target, number = room.posts.pop(post_id)
        room.partial.pop(post_id, None)
        instance = target.receiver.instance_id
        self.counters.moved_bytes[instance] = self.counters.moved_bytes.get(instance, 0) + moved
        if outcome is Outcome.DONE:
            target.done += 1
            target.moved += moved
            self.outgoing.progress(room.key)  # a sign of life between two chunks
            self._complete_if_served(room)
        elif outcome is Outcome.CANCELLED:
            if not room.ending and not room.poll.final:
                target.todo.appendleft(number)
        else:
            if outcome is Outcome.FAILED:
                room.drained = False
                self.undrained = True
            reason = "DISCONNECTED" if disconnected else "WORKER_REPORTED"
            self._fail(room, Failure(reason, error, target.receiver.worker_id))
        if room.closing:
            self._release_sender(room)
        elif not room.poll.final:
            self._pump(room, now)
        self.pacing.update(now)

    def notified(self, payload: bytes, now: float) -> None:
        """A notification, without its prefix."""
        try:
            notification = pb.Notification.FromString(payload)
        except DecodeError:
            self.counters.foreign_notifications += 1
            return
        if notification.HasField("completion"):
            self._completed(notification.completion)
            self.pacing.update(now)

    def drained(self, token: int, now: float) -> None:
        """All that had arrived is consumed: the receiver answers, once."""
        room = self._drains.pop(token, None)
        if room is None:
            return
        self._evaluate(room)
        cause = room.failure or Failure("ABORTED", "the room ended")
        self._fail(room, cause)
        self.pacing.update(now)

    def may_post(self, post_id: int, now: float) -> bool:
        """Whether a piece may be written now: the lease holds, the room is confirmed and not asked to end."""
        room = self._posts.get(post_id)
        held = not self._fence.check(now)
        return held and room is not None and room.confirmed_epoch == self.epoch and not room.ending

    def mover_died(self, error: str) -> None:
        """No page moves any more, and none that was posted is known to have ended."""
        self.give_up(f"the mover ended: {error}")

    def give_up(self, why: str) -> None:
        """This worker can never serve again."""
        self.died = why
        for room in self.rooms.values():
            self._fail(room, Failure("WORKER_REPORTED", why, self.worker_id))

    # --- time ---

    def tick(self, now: float) -> None:
        """Looks at what time alone brings about."""
        self._fence.check(now)
        self._settle(now)
        self.roster.tick(now)
        for room in self.rooms.values():
            if now >= room.deadline and not room.poll.final:
                text = f"not ended {GIVE_UP:g} s after the join, and the service did not end it"
                self._fail(room, Failure("TRANSFER_TIMEOUT", text, self.worker_id))
        self.pacing.update(now)

    @property
    def fenced(self) -> bool:
        """The lease has lapsed: nothing is posted before the worker has registered again."""
        return self._fence.lapsed

    @property
    def in_flight(self) -> bool:
        """Some post has not ended."""
        return bool(self._posts)

    def stop_posting(self) -> None:
        """Fenced: what is posted goes to its end, nothing more is."""
        for post_id in self._posts:
            self._actions.append(Cancel(post_id))

    def _settle(self, now: float) -> None:
        for room in list(self._settling.values()):
            if room.free_at is not None and now >= room.free_at:
                del self._settling[room.room]
                self._forget(room)
                self._hand_back(room)

    # --- inside ---

    def _pump(self, room: SenderRoom, now: float) -> None:
        """Posts what may be posted."""
        ready = room.poll in (KVPoll.WAITING_FOR_INPUT, KVPoll.TRANSFERRING) and not room.ending
        if not ready or self.fenced or room.confirmed_epoch != self.epoch:
            return
        for target in room.targets.values():
            state = self.roster.peers.get(target.receiver.instance_id)
            while target.todo and state is not None and state.links:
                self._post(room, target, target.todo.popleft())
        if room.posts and room.poll is KVPoll.WAITING_FOR_INPUT:
            room.advance(KVPoll.TRANSFERRING)
            self.outgoing.progress(room.key, urgent=False)

    def _post(self, room: SenderRoom, target: Target, number: int) -> None:
        last = room.ends_with(target, number)
        target.completion = room.completion(target, self.worker_id, self._memory) if last else None
        items, ready = room.items(target, number, self._memory), room.chunks[number].ready
        self._next_post += 1
        room.posts[self._next_post] = (target, number)
        self._posts[self._next_post] = room
        self._actions.append(Post(self._next_post, target.receiver.instance_id, items, ready, target.completion))

    def _complete_if_served(self, room: SenderRoom) -> None:
        """Success, once everything is written; the receivers hear of it, if they have not."""
        told = any(target.completion is not None for target in room.targets.values())
        if room.poll.final or (room.ending and not told):
            return
        if not all(room.served(target) for target in room.targets.values()):
            return
        for target in room.targets.values():
            completion = target.completion or room.completion(target, self.worker_id, self._memory)
            room.completions.append(completion)
            if target.completion is None:
                self._actions.append(Notify(target.receiver.instance_id, completion_notification(completion)))
        room.advance(KVPoll.SUCCESS)
        self.outgoing.progress(room.key)  # the notification is faster, and what is held back leaves with others

    def _stop(self, room: SenderRoom) -> None:
        for post_id in room.posts:
            self._actions.append(Cancel(post_id))
        for target in room.targets.values():
            target.todo.clear()

    def _completed(self, completion: pb.Completion) -> None:
        room = self.rooms.get(completion.room)
        if not isinstance(room, ReceiverRoom) or not room.take(completion, self.worker_id):
            self.counters.foreign_completions += 1
            return
        self._evaluate(room)

    def _evaluate(self, room: ReceiverRoom) -> None:
        """Success, once a completion of each sender covers the offer."""
        if room.poll.final or room.destination is None or not room.holds_all():
            return
        misfit = room.uncovered({sender: self._moved_groups(room, sender) for sender in room.senders})
        if misfit is not None:
            self._fail(room, Failure("COMPLETION_MISMATCH", misfit[1], misfit[0]))
            return
        room.advance(KVPoll.SUCCESS)
        self.pacing.over(room.room)
        self.outgoing.progress(room.key)

    def _moved_groups(self, room: ReceiverRoom, sender: str) -> set[str]:
        assert room.destination is not None
        state = self.roster.peers.get(room.senders[sender])
        if state is None or not state.links:
            return {group.group for group in room.destination.groups}
        return state.moved_groups

    def _fail(self, room: SenderRoom | ReceiverRoom, failure: Failure) -> None:
        """Ends this worker's part and reports it. Nothing if it had ended."""
        if not room.fail(failure):
            return
        self.pacing.failed(room.room)
        if not room.closing:
            self.outgoing.progress(room.key, urgent=True)
        if isinstance(room, SenderRoom):
            self._stop(room)

    def _release_sender(self, room: SenderRoom) -> None:
        """Hands a sender's pages back once its posts have ended, and tells the service."""
        if room.posts or room.handed_back:
            return
        room.handed_back = True
        self._hand_back(room)
        if room.sent or self.epoch:
            self.outgoing.cleanup(room.key)
        else:  # nobody can have heard of it
            self._forget(room)

    def _hand_back(self, room: SenderRoom | ReceiverRoom) -> None:
        presumed = isinstance(room, ReceiverRoom) and room.presumed
        self._released.append(Released(room.room, room.pages, room.slots, presumed))

    def _forget(self, room: SenderRoom | ReceiverRoom) -> None:
        del self.rooms[room.room]
        self.outgoing.drop(room.key)
        self.pacing.over(room.room)

    # --- building messages ---

    def _held(self, key: JoinKey) -> SenderRoom | ReceiverRoom | None:
        room = self.rooms.get(key[0])
        return room if room is not None and room.key == key else None

    def _build_join(self, key: JoinKey) -> pb.Join | None:
        room = self._held(key)
        if room is None:
            return None
        room.sent = True
        return room.join_message()

    def _build_progress(self, key: JoinKey) -> pb.Progress | None:
        room = self._held(key)
        return None if room is None else room.progress_message()

    def _build_cleanup(self, key: JoinKey, untold: bool) -> pb.CleanupItem | None:
        room = self._held(key)
        if room is not None:
            return room.cleanup_message(untold)
        return pb.CleanupItem(room=key[0], join_id=key[1], drained=True) if key in self._orphans else None
