"""When pages are free, and that every table empties."""

import pytest

from domain.plane import START, Plane
from kvservice.domain.errors import EngineNotFound, InvalidField, RoomNotFound, RoomReused
from kvservice.domain.policy import Policy
from kvservice.domain.types import FailureReason, Join, Poll, Progress, ReleaseState, Role, RoomState


def test_pages_are_free_after_success() -> None:
    plane = Plane()
    senders, receivers = plane.moving(7)
    plane.finish(7, senders, receivers)
    assert plane.clean(plane.d[0], receivers[0]).state is ReleaseState.FREE
    assert plane.clean(plane.p[0], senders[0]).state is ReleaseState.FREE


def test_a_failed_rooms_pages_wait_for_its_sender_by_name() -> None:
    plane = Plane()
    senders, receivers = plane.moving(7)
    plane.say(plane.d[0], receivers[0], Poll.FAILED)
    release = plane.clean(plane.d[0], receivers[0])
    assert (release.state, release.waiting_for) == (ReleaseState.WAITING, ("p/dp0/pp0/tp0",))
    plane.clean(plane.p[0], senders[0], drained=True)
    assert plane.clean(plane.d[0], receivers[0]).state is ReleaseState.FREE


def test_a_sender_that_did_not_drain_leaves_its_receivers_pages_in_quarantine() -> None:
    plane = Plane()
    senders, receivers = plane.moving(7)
    plane.clean(plane.p[0], senders[0], drained=False)
    plane.say(plane.d[0], receivers[0], Poll.FAILED)
    assert plane.clean(plane.d[0], receivers[0]).state is ReleaseState.QUARANTINED


def test_pages_offered_before_a_sender_joined_are_free() -> None:
    plane = Plane()
    receiver = plane.decode(7)
    assert plane.clean(plane.d[0], receiver).state is ReleaseState.FREE
    assert plane.failed(7).reason is FailureReason.ABORTED


def test_cleanup_is_idempotent_and_outlives_the_room() -> None:
    plane = Plane(policy=Policy(retention=1, lease_ttl=1000, max_lease_ttl=1000))
    senders, receivers = plane.moving(7)
    plane.finish(7, senders, receivers)
    for _ in range(2):
        assert plane.clean(plane.d[0], receivers[0]).state is ReleaseState.FREE
    plane.clean(plane.p[0], senders[0])
    plane.expire(2.0)
    assert not plane.rooms
    assert plane.clean(plane.d[0], receivers[0], 2.0).state is ReleaseState.FREE


def test_a_join_given_up_before_it_came_is_free_and_stays_over() -> None:
    plane = Plane()
    late = Join(7, 99, "p")
    assert plane.clean(plane.d[0], late).state is ReleaseState.FREE
    plane.join(plane.d[0], late, 1.0)
    assert plane.poll(7) is Poll.FAILED
    assert plane.failed(7).worker_id == plane.d[0].ref.worker_id
    assert plane.clean(plane.d[0], late).state is ReleaseState.FREE


def test_a_tombstone_outlives_late_copies_of_a_join_that_it_refused() -> None:
    plane = Plane(policy=Policy(retention=1, lease_ttl=1000, max_lease_ttl=1000))
    senders, receivers = plane.moving(7)
    plane.finish(7, senders, receivers)
    plane.clean(plane.d[0], receivers[0])
    plane.clean(plane.p[0], senders[0])
    refused = Join(7, 99, "p")
    assert plane.clean(plane.d[0], refused, 0.9).state is ReleaseState.FREE
    plane.expire(1.5)
    with pytest.raises(RoomReused):
        plane.join(plane.d[0], refused, 1.5)
    plane.expire(2.0)
    assert not plane.rooms


def test_a_join_given_up_before_it_came_ends_an_open_room() -> None:
    plane = Plane()
    plane.prefill(7)
    assert plane.clean(plane.d[0], Join(7, 99, "p")).state is ReleaseState.FREE
    assert plane.failed(7).worker_id == plane.d[0].ref.worker_id


def test_an_unknown_join_of_a_process_of_a_former_life_proves_nothing() -> None:
    plane = Plane()
    told = (RoomState(7, 99, Poll.TRANSFERRING),)
    survivor = plane.enter("e", Role.DECODE, birth_epoch=START - 1, rooms=told)
    with pytest.raises(RoomNotFound):
        plane.join(survivor, Join(7, 99, "p"), 0.0)
    assert plane.clean(survivor, Join(7, 99)).state is ReleaseState.UNKNOWN
    assert not plane.rooms


def test_a_refused_join_of_a_process_of_a_former_life_is_free() -> None:
    plane = Plane()
    survivor = plane.enter("e", Role.DECODE, birth_epoch=START - 1)
    with pytest.raises(EngineNotFound):
        plane.join(survivor, Join(7, 99, "nobody"), 0.0)
    assert plane.clean(survivor, Join(7, 99, "nobody")).state is ReleaseState.FREE


def test_a_refused_join_given_up_leaves_the_others_room_alone() -> None:
    plane = Plane()
    plane.decode(7)
    plane.prefill(7)
    for stranger in (plane.enter("d2", Role.DECODE), plane.enter("p2", Role.PREFILL)):
        wrong = Join(7, 99, "p" if stranger.engine.role is Role.DECODE else "")
        with pytest.raises(RoomReused):
            plane.join(stranger, wrong, 0.0)
        assert plane.clean(stranger, wrong).state is ReleaseState.FREE
    assert plane.rooms[7].failure is None
    assert plane.poll(7) is Poll.WAITING_FOR_INPUT


def test_cleanup_carries_the_last_progress() -> None:
    plane = Plane()
    senders, receivers = plane.moving(7)
    held = (plane.completion(senders[0], receivers[0]),)
    last = Progress(7, receivers[0].join_id, Poll.SUCCESS, completions=held)
    assert plane.clean(plane.d[0], receivers[0], last=last).state is ReleaseState.FREE
    assert plane.poll(7) is Poll.SUCCESS


def test_the_last_progress_is_of_the_same_room() -> None:
    plane = Plane()
    _, receivers = plane.moving(7)
    with pytest.raises(InvalidField) as refused:
        plane.clean(plane.d[0], receivers[0], last=Progress(8, receivers[0].join_id, Poll.FAILED))
    assert refused.value.field == "items.last"


def test_a_cleanup_before_the_end_asks_the_room_to_end() -> None:
    plane = Plane()
    senders, _ = plane.moving(7)
    plane.clean(plane.p[0], senders[0])
    assert plane.failed(7).reason is FailureReason.ABORTED
    assert plane.failed(7).worker_id == "p/dp0/pp0/tp0"


def test_a_silent_sender_leaves_pages_in_quarantine_until_it_was_seen_to_exit() -> None:
    plane = Plane()
    _, receivers = plane.moving(7)
    plane.renew(plane.d[0], False, 10.0)
    plane.expire(15.0)
    plane.say(plane.d[0], receivers[0], Poll.FAILED, 15.0)
    assert plane.clean(plane.d[0], receivers[0], 15.0).state is ReleaseState.QUARANTINED
    dead = plane.p[0].peer.instance_id
    plane.enter("p", Role.PREFILL, now=16.0)
    assert plane.clean(plane.d[0], receivers[0], 16.0).state is ReleaseState.QUARANTINED
    plane.enter("p", Role.PREFILL, now=17.0, exited_instances=(dead,))
    assert plane.clean(plane.d[0], receivers[0], 17.0).state is ReleaseState.FREE


def test_nobody_attests_the_exit_of_a_live_process_or_of_another_rank() -> None:
    plane = Plane(tp=2)
    _, receivers = plane.moving(7)
    plane.say(plane.d[0], receivers[0], Poll.FAILED)
    plane.again(plane.p[1], exited_instances=(plane.p[0].peer.instance_id,))
    plane.again(plane.p[0], exited_instances=(plane.p[0].peer.instance_id,))
    assert plane.clean(plane.d[0], receivers[0]).state is ReleaseState.WAITING


def test_a_drained_deregistration_is_proof_and_another_is_not() -> None:
    for drained, state in ((True, ReleaseState.FREE), (False, ReleaseState.QUARANTINED)):
        plane = Plane()
        _, receivers = plane.moving(7)
        plane.deregister(plane.p[0].ref, drained, 1.0)
        plane.say(plane.d[0], receivers[0], Poll.FAILED, 1.0)
        assert plane.clean(plane.d[0], receivers[0], 1.0).state is state


def test_a_receiver_that_was_silent_and_comes_back_still_waits_for_its_sender() -> None:
    plane = Plane()
    senders, receivers = plane.moving(7)
    plane.renew(plane.p[0], False, 10.0)
    plane.expire(15.0)
    assert plane.failed(7).worker_id == "d/dp0/pp0/tp0"
    again = plane.again(plane.d[0], now=16.0, rooms=(RoomState(7, receivers[0].join_id, Poll.FAILED),))
    assert plane.clean(again, receivers[0], 16.0).state is ReleaseState.WAITING
    plane.clean(plane.p[0], senders[0], 17.0)
    assert plane.clean(again, receivers[0], 17.0).state is ReleaseState.FREE


def test_a_sender_that_was_silent_and_comes_back_is_waited_for() -> None:
    plane = Plane()
    senders, receivers = plane.moving(7)
    plane.renew(plane.d[0], False, 10.0)
    plane.expire(15.0)
    plane.say(plane.d[0], receivers[0], Poll.FAILED, 15.0)
    again = plane.again(plane.p[0], now=16.0, rooms=(RoomState(7, senders[0].join_id, Poll.TRANSFERRING),))
    assert plane.clean(plane.d[0], receivers[0], 16.0).state is ReleaseState.WAITING
    plane.clean(again, senders[0], 17.0)
    assert plane.clean(plane.d[0], receivers[0], 17.0).state is ReleaseState.FREE


# --- tables ---


def test_every_table_is_empty_after_retention() -> None:
    plane = Plane(tp=3, policy=Policy(retention=1))
    for room in range(1, 21):
        senders, receivers = plane.moving(room)
        if room % 2:
            plane.finish(room, senders, receivers)
        else:
            plane.abort(room, "", 0.0)
            for worker, join in zip(plane.d, receivers, strict=True):
                plane.say(worker, join, Poll.FAILED)
        for worker, join in (*zip(plane.d, receivers, strict=True), *zip(plane.p, senders, strict=True)):
            plane.clean(worker, join)
    assert plane.sizes().open_rooms == 0
    for worker in (*plane.p, *plane.d):
        plane.deregister(worker.ref, True, 1.0)
    plane.expire(2.0)
    assert set(entries(plane).values()) == {0}


def test_a_pair_that_died_together_is_forgotten_too() -> None:
    plane = Plane(policy=Policy(retention=1))
    plane.moving(7)
    for second in range(20, 30):
        plane.expire(float(second))
    assert set(entries(plane).values()) == {0}


def test_a_dead_senders_debt_stays_while_its_receiver_lives_and_goes_with_it() -> None:
    plane = Plane(policy=Policy(retention=1))
    _, receivers = plane.moving(7)
    for second in range(10, 40, 10):
        plane.renew(plane.d[0], False, float(second))
        plane.expire(float(second + 9))
    plane.say(plane.d[0], receivers[0], Poll.FAILED, 40.0)
    plane.clean(plane.d[0], receivers[0], 40.0)
    assert plane.sizes().pending_pages == 1
    plane.deregister(plane.d[0].ref, True, 41.0)
    for second in range(42, 46):
        plane.expire(float(second))
    assert set(entries(plane).values()) == {0}


def entries(plane: Plane) -> dict[str, int]:
    sizes = plane.sizes()
    return {name: getattr(sizes, name) for name in sizes.__dataclass_fields__}
