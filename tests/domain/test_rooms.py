"""One room's life: joins, polls, completions, verdicts."""

from dataclasses import replace

import pytest

from domain.plane import Plane, destination, layout, paged, slots
from kvservice.domain.errors import (
    Draining,
    EngineNotFound,
    InvalidField,
    JoinConflict,
    LimitReached,
    NotAParticipant,
    RoomNotFound,
    RoomReused,
)
from kvservice.domain.policy import Policy
from kvservice.domain.types import Failure, FailureReason, Join, Poll, Role, Side, Topology

REPORTED = Failure(FailureReason.WORKER_REPORTED, "NIXL said no", "p/dp0/pp0/tp0")


# --- the good way ---


@pytest.mark.parametrize("prefill_first", [True, False])
def test_a_room_goes_from_bootstrapping_to_success_in_either_order_of_joining(prefill_first: bool) -> None:
    plane = Plane()
    seen = []
    if prefill_first:
        sender = plane.prefill(7)
        seen.append(plane.poll(7))
        receiver = plane.decode(7)
    else:
        receiver = plane.decode(7)
        seen.append(plane.poll(7))
        sender = plane.prefill(7)
    seen.append(plane.poll(7))
    plane.say(plane.p[0], sender, Poll.TRANSFERRING)
    seen.append(plane.poll(7))
    plane.finish(7, [sender], [receiver])
    seen.append(plane.poll(7))
    assert seen == [Poll.BOOTSTRAPPING, Poll.WAITING_FOR_INPUT, Poll.TRANSFERRING, Poll.SUCCESS]
    assert plane.rooms[7].failure is None
    assert {p.transferred_bytes for p in plane.rooms[7].participants.values()} == {2 * 16384 + 64}


def test_a_sender_waits_for_all_offers_and_a_receiver_for_all_senders() -> None:
    plane = Plane(tp=2)
    plane.decode(7, rank=0)
    plane.prefill(7, rank=0)
    assert plane.own_poll(7, plane.p[0]) is Poll.WAITING_FOR_INPUT
    assert plane.own_poll(7, plane.d[0]) is Poll.WAITING_FOR_INPUT
    assert plane.poll(7) is Poll.BOOTSTRAPPING  # the other ranks are awaited by name
    assert plane.own_poll(7, plane.p[1]) is Poll.BOOTSTRAPPING


def test_a_receiver_may_join_first_and_offer_later() -> None:
    plane = Plane()
    join = plane.decode(7, destination=None)
    plane.prefill(7)
    assert plane.own_poll(7, plane.d[0]) is Poll.WAITING_FOR_INPUT
    assert plane.own_poll(7, plane.p[0]) is Poll.BOOTSTRAPPING
    plane.join(plane.d[0], join._replace(destination=destination(20, [3, 9])), 1.0)
    assert plane.own_poll(7, plane.p[0]) is Poll.WAITING_FOR_INPUT
    assert plane.rooms[7].tokens == 20


def test_a_sender_that_moves_pages_takes_its_receiver_along() -> None:
    plane = Plane()
    plane.moving(7)
    assert plane.own_poll(7, plane.d[0]) is Poll.TRANSFERRING


def test_zero_pages_is_a_transfer() -> None:
    plane = Plane()
    receiver = plane.decode(7, destination=destination(20, [], prefix_tokens=20))
    sender = plane.prefill(7)
    held = [plane.completion(sender, receiver, pages=0)]
    plane.say(plane.p[0], sender, Poll.SUCCESS, 0.0, held)
    plane.say(plane.d[0], receiver, Poll.SUCCESS, 0.0, held)
    assert plane.poll(7) is Poll.SUCCESS


def test_a_receivers_completion_proves_its_senders_success() -> None:
    plane = Plane()
    senders, receivers = plane.moving(7)
    plane.say(plane.d[0], receivers[0], Poll.SUCCESS, 0.0, [plane.completion(senders[0], receivers[0])])
    assert plane.own_poll(7, plane.p[0]) is Poll.SUCCESS
    assert plane.poll(7) is Poll.SUCCESS


def test_a_senders_success_alone_is_not_the_rooms() -> None:
    plane = Plane()
    senders, receivers = plane.moving(7)
    plane.say(plane.p[0], senders[0], Poll.SUCCESS, 0.0, [plane.completion(senders[0], receivers[0])])
    assert plane.own_poll(7, plane.p[0]) is Poll.SUCCESS
    assert plane.poll(7) is Poll.TRANSFERRING


def test_a_receiver_cannot_succeed_without_a_completion_of_every_sender() -> None:
    plane = Plane()
    _, receivers = plane.moving(7)
    plane.say(plane.d[0], receivers[0], Poll.SUCCESS)
    assert plane.own_poll(7, plane.d[0]) is Poll.TRANSFERRING


# --- polls never go back ---


def test_late_and_repeated_reports_change_nothing() -> None:
    plane = Plane()
    senders, receivers = plane.moving(7)
    plane.say(plane.p[0], senders[0], Poll.TRANSFERRING, 0.0, moved=100)
    plane.finish(7, senders, receivers)
    revision = plane.changes.revision
    plane.say(plane.p[0], senders[0], Poll.TRANSFERRING, 1.0, moved=200)
    plane.say(plane.p[0], senders[0], Poll.FAILED, 1.0, failure=REPORTED)
    plane.say(plane.d[0], receivers[0], Poll.FAILED, 1.0, failure=REPORTED)
    plane.finish(7, senders, receivers, 1.0)
    plane.abort(7, "too late", 1.0)
    assert plane.changes.revision == revision
    assert (plane.poll(7), plane.rooms[7].failure) == (Poll.SUCCESS, None)


def test_the_first_failure_stays() -> None:
    plane = Plane()
    senders, _ = plane.moving(7)
    plane.say(plane.p[0], senders[0], Poll.FAILED, 1.0, failure=REPORTED)
    plane.abort(7, "by a person", 2.0)
    assert plane.failed(7) == REPORTED


def test_bytes_only_grow() -> None:
    plane = Plane()
    senders, _ = plane.moving(7)
    for moved in (100, 300, 200):
        plane.say(plane.p[0], senders[0], Poll.TRANSFERRING, 0.0, moved=moved)
    assert plane.rooms[7].participants[plane.p[0].ref.worker_id].transferred_bytes == 300


# --- the receivers decide ---


def test_a_failed_sender_asks_and_its_receiver_that_holds_all_says_success() -> None:
    plane = Plane()
    senders, receivers = plane.moving(7)
    plane.say(plane.p[0], senders[0], Poll.FAILED, 1.0, failure=REPORTED)
    assert (plane.poll(7), plane.failed(7)) == (Poll.TRANSFERRING, REPORTED)
    plane.say(plane.d[0], receivers[0], Poll.SUCCESS, 1.5, [plane.completion(senders[0], receivers[0])])
    assert (plane.poll(7), plane.failed(7)) == (Poll.SUCCESS, REPORTED)


def test_an_aborted_room_fails_when_its_receiver_says_so() -> None:
    plane = Plane()
    _, receivers = plane.moving(7)
    plane.abort(7, "nobody listens any more", 1.0)
    assert plane.own_poll(7, plane.d[0]) is Poll.TRANSFERRING
    plane.say(plane.d[0], receivers[0], Poll.FAILED, 1.2)
    assert plane.poll(7) is Poll.FAILED
    assert plane.failed(7) == Failure(FailureReason.ABORTED, "nobody listens any more")


def test_receivers_that_do_not_answer_count_as_failed_after_the_vote() -> None:
    plane = Plane()
    plane.moving(7)
    plane.abort(7, "", 1.0)
    plane.expire(5.9)
    assert plane.poll(7) is Poll.TRANSFERRING
    plane.expire(6.0)
    assert plane.poll(7) is Poll.FAILED


def test_a_room_without_receivers_fails_at_once() -> None:
    plane = Plane()
    plane.prefill(7)
    plane.abort(7, "", 1.0)
    assert plane.poll(7) is Poll.FAILED


def test_a_receiver_that_joins_a_room_asked_to_end_is_failed() -> None:
    plane = Plane(tp=2)
    plane.decode(7, rank=0)
    plane.abort(7, "", 1.0)
    plane.decode(7, rank=1)
    assert plane.own_poll(7, plane.d[1]) is Poll.FAILED


def test_another_ranks_failure_does_not_change_ones_own_success() -> None:
    plane = Plane(tp=2)
    senders, receivers = plane.moving(7)
    plane.say(plane.d[0], receivers[0], Poll.SUCCESS, 1.0, [plane.completion(senders[0], receivers[0], 0)])
    plane.say(plane.d[1], receivers[1], Poll.FAILED, 1.0)
    assert plane.poll(7) is Poll.FAILED
    assert plane.own_poll(7, plane.d[0]) is Poll.SUCCESS


def test_a_sender_killed_after_its_last_write_loses_nothing() -> None:
    plane = Plane()
    senders, receivers = plane.moving(7)
    plane.renew(plane.d[0], False, 10.0)
    plane.expire(15.0)
    assert plane.failed(7).reason is FailureReason.LEASE_EXPIRED
    plane.say(plane.d[0], receivers[0], Poll.SUCCESS, 15.5, [plane.completion(senders[0], receivers[0])])
    assert plane.poll(7) is Poll.SUCCESS


# --- success is seen until one's own cleanup ---


def test_the_late_rank_sees_success_after_the_others_cleaned_up() -> None:
    plane = Plane(tp=3)
    senders, receivers = plane.moving(7)
    plane.finish(7, senders, receivers)
    assert plane.own_poll(7, plane.d[0]) is Poll.SUCCESS
    plane.clean(plane.d[0], receivers[0])
    plane.clean(plane.p[0], senders[0])
    for rank in (1, 2):
        for worker, join in ((plane.d[rank], receivers[rank]), (plane.p[rank], senders[rank])):
            assert plane.say(worker, join, Poll.TRANSFERRING, 1.0).poll is Poll.SUCCESS
            assert plane.own_poll(7, worker) is Poll.SUCCESS
            plane.clean(worker, join, 1.0)
    assert plane.poll(7) is Poll.SUCCESS
    assert plane.sizes().open_rooms == 0


# --- completions ---


@pytest.mark.parametrize("wrong", [{"offer_id": 99}, {"sender_join_id": 99}, {"room": 8}, {"sender": "p/dp0/pp0/tp9"}])
def test_a_completion_of_another_join_is_dropped_and_fails_nothing(wrong: dict[str, object]) -> None:
    plane = Plane()
    senders, receivers = plane.moving(7)
    bad = plane.completion(senders[0], receivers[0])._replace(**wrong)
    plane.say(plane.p[0], senders[0], Poll.SUCCESS, 1.0, [bad])
    assert plane.rooms[7].failure is None
    assert plane.rooms[7].dropped == 1
    assert plane.own_poll(7, plane.p[0]) is Poll.TRANSFERRING


def test_a_completion_that_does_not_cover_the_offer_ends_the_room_by_name() -> None:
    plane = Plane()
    senders, receivers = plane.moving(7)
    short = plane.completion(senders[0], receivers[0], pages=1)
    plane.say(plane.p[0], senders[0], Poll.SUCCESS, 1.0, [short])
    assert plane.failed(7).reason is FailureReason.COMPLETION_MISMATCH
    assert plane.failed(7).worker_id == "p/dp0/pp0/tp0"
    assert "1 of 2 items" in plane.failed(7).message


def test_a_completion_that_differs_from_the_one_held_ends_the_room() -> None:
    plane = Plane()
    senders, receivers = plane.moving(7)
    good = plane.completion(senders[0], receivers[0])
    plane.say(plane.p[0], senders[0], Poll.SUCCESS, 1.0, [good])
    plane.say(plane.p[0], senders[0], Poll.SUCCESS, 1.0, [good._replace(bytes=1)])
    assert plane.failed(7).reason is FailureReason.COMPLETION_MISMATCH


def test_nobody_completes_for_others() -> None:
    plane = Plane(tp=2)
    senders, receivers = plane.moving(7)
    plane.say(plane.p[1], senders[1], Poll.SUCCESS, 1.0, [plane.completion(senders[0], receivers[0], 0)])
    assert not plane.rooms[7].participants["d/dp0/pp0/tp0"].completions


def test_reports_of_another_join_are_dropped() -> None:
    plane = Plane()
    senders, _ = plane.moving(7)
    plane.say(plane.p[0], senders[0]._replace(join_id=99), Poll.FAILED, 1.0, failure=REPORTED)
    assert plane.rooms[7].failure is None


# --- joins that are refused ---


def test_the_same_join_is_a_repeat() -> None:
    plane = Plane()
    join = plane.decode(7)
    revision = plane.changes.revision
    plane.join(plane.d[0], join, 1.0)
    assert plane.changes.revision == revision


def test_a_repeat_with_another_destination_or_peer_is_a_conflict() -> None:
    plane = Plane()
    plane.enter("p2", Role.PREFILL)
    join = plane.decode(7)
    with pytest.raises(JoinConflict, match="destination"):
        plane.join(plane.d[0], join._replace(destination=destination(20, [3, 8])), 1.0)
    prefill = plane.prefill(8)
    with pytest.raises(JoinConflict, match="peer engine"):
        plane.join(plane.p[0], prefill._replace(peer_engine_id="d"), 1.0)


def test_another_join_of_the_same_worker_is_reuse() -> None:
    plane = Plane()
    join = plane.decode(7)
    with pytest.raises(RoomReused):
        plane.join(plane.d[0], join._replace(join_id=99), 1.0)


def test_another_engine_on_a_side_is_reuse() -> None:
    plane = Plane()
    plane.enter("d2", Role.DECODE)
    plane.enter("p2", Role.PREFILL)
    plane.decode(7)
    with pytest.raises(RoomReused, match="d2"):
        plane.join(plane.registry.workers["d2/dp0/pp0/tp0"], Join(7, 98, "p"), 1.0)
    with pytest.raises(RoomReused, match="p2"):
        plane.join(plane.registry.workers["p2/dp0/pp0/tp0"], Join(7, 99), 1.0)


def test_another_replica_on_a_side_is_reuse() -> None:
    plane = Plane()
    replicas = [
        plane.enter("dd", Role.DECODE, topology=Topology(1, 1, 2), rank=replace(plane.d[0].rank, dp_rank=rank))
        for rank in range(2)
    ]
    plane.join(replicas[0], Join(7, 98, "p"), 1.0)
    with pytest.raises(RoomReused, match="replica"):
        plane.join(replicas[1], Join(7, 99, "p"), 1.0)
    assert plane.rooms[7].sides == {Role.DECODE: Side("dd", 0), Role.PREFILL: Side("p", 0)}


@pytest.mark.parametrize(
    ("join", "field"),
    [
        (Join(0, 1, "p"), "join.room"),
        (Join(-5, 1, "p"), "join.room"),
        (Join(7, 0, "p"), "join.join_id"),
        (Join(7, 1, ""), "join.peer_engine_id"),
        (Join(7, 1, "P"), "join.peer_engine_id"),
        (Join(7, 1, "p", 1), "join.peer_dp_rank"),
        (Join(7, 1, "p", request_id="x" * 129), "join.request_id"),
        (Join(7, 1, "p", traceparent="x" * 65), "join.traceparent"),
        (Join(7, 1, "p", destination=destination(0, [])), "join.destination.tokens"),
        (Join(7, 1, "p", destination=destination(20, [3, 64])), "join.destination.groups[kv].indices"),
    ],
)
def test_a_bad_join_is_refused_by_field_and_opens_nothing(join: Join, field: str) -> None:
    plane = Plane()
    with pytest.raises(InvalidField) as refused:
        plane.join(plane.d[0], join, 0.0)
    assert refused.value.field == field
    assert plane.sizes().rooms == 0


def test_a_prefill_worker_offers_nothing() -> None:
    plane = Plane()
    with pytest.raises(InvalidField) as refused:
        plane.prefill(7, destination=destination(20, [3, 9]))
    assert refused.value.field == "join.destination"


def test_a_join_with_an_unknown_engine_is_refused() -> None:
    with pytest.raises(EngineNotFound, match="'x'"):
        Plane().decode(7, peer_engine_id="x")


def test_misfits_fail_the_room_in_the_same_words_for_both() -> None:
    plane = Plane()
    plane.enter("p2", Role.PREFILL, layout=layout(paged(dtype="bfloat16"), slots()))
    plane.decode(7, peer_engine_id="p2")
    plane.join(plane.registry.workers["p2/dp0/pp0/tp0"], Join(7, 99), 1.0)
    assert plane.failed(7).reason is FailureReason.LAYOUT_MISMATCH
    assert "dtype: prefill has bfloat16, decode has float16" in plane.failed(7).message


def test_two_decode_engines_are_misfits() -> None:
    plane = Plane()
    plane.enter("d2", Role.DECODE)
    plane.decode(7, peer_engine_id="d2")
    assert plane.failed(7).reason is FailureReason.LAYOUT_MISMATCH
    assert "DECODE, PREFILL is needed" in plane.failed(7).message


def test_calls_for_unknown_rooms_and_by_strangers_are_refused() -> None:
    plane = Plane()
    with pytest.raises(RoomNotFound):
        plane.say(plane.p[0], Join(7, 1), Poll.TRANSFERRING)
    plane.decode(7)
    with pytest.raises(NotAParticipant):
        plane.say(plane.p[0], Join(7, 1), Poll.TRANSFERRING)
    with pytest.raises(InvalidField):
        plane.abort(0, "", 0.0)


def test_a_room_that_the_other_side_never_joins_says_which() -> None:
    plane = Plane()
    plane.prefill(7)  # names no engine: nobody in particular is waited for
    plane.renew(plane.p[0], False, 119.0)
    plane.expire(120.0)
    assert plane.failed(7).reason is FailureReason.HANDSHAKE_TIMEOUT
    assert plane.failed(7).message == "not all joined within 120 s, no decode worker has joined"


def test_open_and_closed_rooms_are_bounded() -> None:
    plane = Plane(policy=Policy(max_open_rooms=2, max_closed_rooms=2))
    joins = [plane.decode(room) for room in (1, 2)]
    with pytest.raises(LimitReached) as refused:
        plane.decode(3)
    assert refused.value.metadata == {"limit": "max_open_rooms"}
    for join in joins:
        plane.clean(plane.d[0], join)
    with pytest.raises(LimitReached) as refused:
        plane.decode(3)
    assert refused.value.metadata == {"limit": "max_closed_rooms"}
    with pytest.raises(LimitReached):
        plane.abort(3, "", 0.0)
    plane.expire(120.0)
    plane.abort(3, "", 120.0)


def test_a_draining_service_opens_no_rooms_and_serves_those_that_are_open() -> None:
    plane = Plane()
    receiver = plane.decode(7)
    plane.draining = True
    with pytest.raises(Draining):
        plane.decode(8)
    sender = plane.prefill(7)
    plane.finish(7, [sender], [receiver])
    assert plane.poll(7) is Poll.SUCCESS


# --- tombstones ---


def test_a_cleaned_up_room_tells_repeats_the_end_and_others_that_it_is_used() -> None:
    plane = Plane()
    senders, receivers = plane.moving(7)
    plane.finish(7, senders, receivers)
    plane.clean(plane.p[0], senders[0])
    plane.clean(plane.d[0], receivers[0])
    assert plane.join(plane.d[0], receivers[0], 1.0).poll is Poll.SUCCESS
    assert plane.say(plane.p[0], senders[0], Poll.TRANSFERRING, 1.0).poll is Poll.SUCCESS
    with pytest.raises(RoomReused):
        plane.join(plane.d[0], receivers[0]._replace(join_id=99), 1.0)


def test_a_room_aborted_before_it_opens_is_failed_for_whoever_joins_and_its_cleanup_is_free() -> None:
    plane = Plane()
    plane.abort(7, "the caller hung up", 0.0)
    join = plane.decode(7)
    assert plane.own_poll(7, plane.d[0]) is Poll.FAILED
    assert plane.failed(7) == Failure(FailureReason.ABORTED, "the caller hung up")
    assert plane.clean(plane.d[0], join).state.name == "FREE"


def test_a_tombstone_is_forgotten_after_its_time() -> None:
    plane = Plane(policy=Policy(retention=10))
    senders, receivers = plane.moving(7)
    plane.finish(7, senders, receivers)
    plane.clean(plane.p[0], senders[0], 1.0)
    plane.clean(plane.d[0], receivers[0], 2.0)
    plane.expire(11.9)
    assert 7 in plane.rooms
    plane.expire(12.0)
    assert plane.rooms == {}
    assert [gone.room for gone in plane.changes.forgotten_since(0)] == [7]


# --- engines and limits ---


def test_a_room_that_waits_for_an_engine_to_be_complete_goes_on_once_it_is() -> None:
    plane = Plane(tp=2)
    plane.deregister(plane.p[1].ref, True, 0.0)
    plane.decode(7, rank=0)
    plane.prefill(7, rank=0)
    assert plane.own_poll(7, plane.p[0]) is Poll.BOOTSTRAPPING
    plane.enter("p", Role.PREFILL, 1, 2, now=1.0)
    assert plane.own_poll(7, plane.p[0]) is Poll.WAITING_FOR_INPUT


def test_aborts_of_rooms_that_nobody_opened_leave_room_for_others() -> None:
    plane = Plane(policy=Policy(max_closed_rooms=4))
    for room in (1, 2):
        plane.abort(room, "", 0.0)
    with pytest.raises(LimitReached):
        plane.abort(3, "", 0.0)
    plane.decode(4)
    assert plane.poll(4) is Poll.BOOTSTRAPPING
