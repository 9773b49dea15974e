"""Registration, epochs, leases."""

import uuid

import pytest

from domain.plane import START, Plane, layout, paged, registration, slots
from kvservice.domain.errors import (
    Draining,
    EngineMismatch,
    EngineNotFound,
    InvalidField,
    LayoutMismatch,
    LimitReached,
    RoomNotFound,
    StaleEpoch,
    WorkerNotFound,
)
from kvservice.domain.policy import Policy
from kvservice.domain.types import FailureReason, Poll, Rank, Role, RoomState, Topology, WorkerRef


def test_each_registration_has_a_greater_epoch_than_any_before() -> None:
    plane = Plane(tp=2)
    epochs = [worker.ref.epoch for worker in (*plane.p, *plane.d, plane.again(plane.p[0]))]
    assert epochs == sorted(set(epochs))
    assert epochs[0] > START


def test_a_call_under_an_older_epoch_is_refused_and_under_none_is_not_found() -> None:
    plane = Plane()
    old = plane.p[0].ref
    plane.again(plane.p[0])
    with pytest.raises(StaleEpoch):
        plane.caller(old, 1.0)
    with pytest.raises(WorkerNotFound):
        plane.caller(WorkerRef("nobody/dp0/pp0/tp0", 1), 1.0)


def test_of_two_processes_at_a_rank_the_one_born_later_has_it() -> None:
    plane = Plane()
    older = plane.p[0]
    newer = plane.enter("p", Role.PREFILL)
    with pytest.raises(StaleEpoch, match="born later"):
        plane.again(older)
    assert plane.registry.workers[newer.ref.worker_id] is newer


def test_a_process_that_was_replaced_while_away_is_told_to_stop() -> None:
    plane = Plane(policy=Policy(retention=1))
    older = plane.p[0]
    plane.enter("p", Role.PREFILL, now=1.0)
    plane.expire(10.0)  # nothing of the older process is left
    with pytest.raises(StaleEpoch, match="born later"):
        plane.again(older, now=10.0)


def test_a_replaced_worker_fails_its_rooms_by_name() -> None:
    plane = Plane()
    plane.moving(7)
    plane.enter("d", Role.DECODE)
    assert plane.poll(7) is Poll.FAILED
    assert plane.failed(7).reason is FailureReason.WORKER_REPLACED
    assert plane.failed(7).worker_id == "d/dp0/pp0/tp0"


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"engine_id": "P"}, "engine_id"),
        ({"engine_id": "p" * 64}, "engine_id"),
        ({"instance_id": "me"}, "instance_id"),
        ({"topology": Topology(0, 1, 1)}, "topology.tp_size"),
        ({"topology": Topology(4097, 1, 1)}, "topology.tp_size"),
        ({"topology": Topology(100, 100, 1)}, "topology"),
        ({"rank": Rank(0, 0, 1)}, "rank.tp_rank"),
        ({"rank": Rank(0, -1, 0)}, "rank.pp_rank"),
        ({"rank": Rank(1, 0, 0)}, "rank.dp_rank"),
        ({"nixl_metadata": b"x" * (128 * 1024 + 1)}, "nixl_metadata"),
        ({"birth_epoch": -1}, "birth_epoch"),
        ({"endpoint": "x" * 257}, "endpoint"),
        ({"user_agent": "x" * 257}, "user_agent"),
        ({"labels": {str(number): "" for number in range(17)}}, "labels"),
        ({"labels": {"k" * 64: ""}}, "labels"),
        ({"labels": {"k": "v" * 257}}, "labels"),
        ({"layout": layout(model="")}, "layout.model"),
    ],
)
def test_a_bad_registration_is_refused_by_field(said: dict[str, object], field: str) -> None:
    plane = Plane()
    fields = {"engine_id": "x", "role": Role.PREFILL} | said
    with pytest.raises(InvalidField) as refused:
        plane.register(registration(**fields), 0.0)  # type: ignore[arg-type]
    assert refused.value.field == field
    assert plane.sizes().workers == 2


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"role": Role.DECODE}, "role"),
        ({"topology": Topology(2, 2, 1)}, "topology"),
        ({"layout": layout(model="n")}, "layout"),
        ({"layout": layout(paged(page_tokens=32), slots())}, "layout"),
        ({"layout": layout(paged(dtype="bfloat16"), slots())}, "layout"),
    ],
)
def test_ranks_of_one_engine_agree(said: dict[str, object], field: str) -> None:
    plane = Plane(tp=2)
    fields = {"role": Role.PREFILL, "rank": 1, "tp": 2} | said
    with pytest.raises(EngineMismatch) as refused:
        plane.register(registration("p", **fields), 0.0)  # type: ignore[arg-type]
    assert refused.value.metadata["field"] == field


def test_an_engine_may_take_a_new_shape_once_its_workers_are_gone() -> None:
    plane = Plane()
    plane.enter("p", Role.PREFILL, tp=2)
    assert plane.registry.engine("p").topology.tp_size == 2


def test_the_links_of_a_new_shape_are_not_those_of_the_old() -> None:
    plane = Plane()
    plane.links("p", 0, "d", 0, "")
    other = layout(paged(dtype="bfloat16"), slots())
    plane.enter("p", Role.PREFILL, layout=other)
    with pytest.raises(LayoutMismatch, match="dtype"):
        plane.links("p", 0, "d", 0, "")


def test_a_process_may_not_register_other_memory() -> None:
    plane = Plane()
    with pytest.raises(InvalidField) as refused:
        plane.again(plane.p[0], layout=layout(model="n"))
    assert refused.value.field == "layout"


def test_a_process_has_one_rank() -> None:
    plane = Plane(tp=2)
    said = registration("p", Role.PREFILL, 1, 2, instance_id=plane.p[0].peer.instance_id)
    with pytest.raises(InvalidField) as refused:
        plane.register(said, 0.0)
    assert refused.value.field == "instance_id"


@pytest.mark.parametrize(("asked", "granted"), [(None, 15.0), (30.0, 30.0), (1000.0, 60.0), (0.01, 1.0)])
def test_a_lease_is_clamped(asked: float | None, granted: float) -> None:
    assert Plane().enter("x", Role.PREFILL, lease_ttl=asked).lease_ttl == granted


def test_a_lease_that_ends_takes_the_worker_and_fails_its_rooms_by_name() -> None:
    plane = Plane()
    plane.moving(7)
    plane.renew(plane.d[0], False, 14.0)
    plane.expire(14.9)
    assert plane.poll(7) is Poll.TRANSFERRING
    plane.expire(15.0)
    assert plane.failed(7).reason is FailureReason.LEASE_EXPIRED
    assert plane.failed(7).worker_id == "p/dp0/pp0/tp0"
    with pytest.raises(WorkerNotFound):
        plane.caller(plane.p[0].ref, 15.0)
    plane.caller(plane.d[0].ref, 15.0)


def test_renewing_keeps_a_lease_for_ever() -> None:
    plane = Plane()
    for second in range(0, 600, 10):
        plane.expire(float(second))
        for worker in (*plane.p, *plane.d):
            plane.renew(plane.caller(worker.ref, float(second)), False, float(second))
    assert plane.sizes().workers == 2


def test_deregistering_is_fine_twice_and_under_an_older_epoch_removes_nothing() -> None:
    plane = Plane()
    old = plane.p[0].ref
    newer = plane.again(plane.p[0])
    plane.deregister(old, True, 1.0)
    assert plane.caller(newer.ref, 1.0) is newer
    plane.deregister(newer.ref, True, 1.0)
    plane.deregister(newer.ref, True, 1.0)
    with pytest.raises(EngineNotFound):
        plane.registry.engine("p")


def test_a_worker_that_deregisters_fails_its_rooms() -> None:
    plane = Plane()
    plane.moving(7)
    plane.deregister(plane.p[0].ref, True, 1.0)
    assert plane.failed(7).reason is FailureReason.WORKER_DEREGISTERED


def test_links_name_one_workers_peers_if_asked() -> None:
    plane = Plane(tp=3)
    links, peers = plane.links("d", 0, "p", 0, "d/dp0/pp0/tp1")
    assert [(link.sender, link.receiver) for link in links] == [("p/dp0/pp0/tp1", "d/dp0/pp0/tp1")]
    assert peers == [plane.p[1]]
    assert len(plane.links("p", 0, "d", 0, "")[0]) == 3


def test_links_that_cannot_be_are_refused() -> None:
    plane = Plane(tp=2)
    with pytest.raises(EngineNotFound, match="'x'"):
        plane.links("p", 0, "x", 0, "")
    with pytest.raises(InvalidField) as refused:
        plane.links("p", 0, "d", 1, "")
    assert refused.value.field == "peer_dp_rank"
    with pytest.raises(InvalidField) as refused:
        plane.links("p", 0, "d", 0, "p/dp0/pp0/tp2")
    assert refused.value.field == "worker_id"
    with pytest.raises(LayoutMismatch, match="both PREFILL"):
        plane.links("p", 0, "p", 0, "")
    plane.deregister(plane.d[1].ref, True, 1.0)
    with pytest.raises(EngineNotFound, match="1 ranks of replica 0"):
        plane.links("p", 0, "d", 0, "")


def test_workers_and_engines_are_bounded() -> None:
    plane = Plane(policy=Policy(max_workers=3, max_engines=3))
    plane.enter("x", Role.PREFILL, 0, 2)
    with pytest.raises(LimitReached) as refused:
        plane.enter("x", Role.PREFILL, 1, 2)
    assert refused.value.metadata == {"limit": "max_workers"}
    plane.again(plane.p[0])  # whoever is there may come again
    plane = Plane(policy=Policy(max_engines=2))
    with pytest.raises(LimitReached) as refused:
        plane.enter("x", Role.PREFILL)
    assert refused.value.metadata == {"limit": "max_engines"}


def test_a_draining_service_takes_no_workers() -> None:
    plane = Plane()
    plane.draining = True
    with pytest.raises(Draining):
        plane.enter("x", Role.PREFILL)


def test_a_worker_lists_its_rooms_and_what_it_leaves_out_is_released_once_it_speaks() -> None:
    plane = Plane()
    senders, _ = plane.moving(7)
    again = plane.again(plane.p[0], now=1.0)
    assert plane.poll(7) is Poll.TRANSFERRING  # a late copy of the call would release nothing
    plane.caller(again.ref, 1.0)
    assert plane.rooms[7].participants[again.ref.worker_id].released
    assert plane.failed(7).reason is FailureReason.ABORTED
    assert plane.clean(again, senders[0], 1.0).state.name == "FREE"


def test_a_room_that_was_forgotten_while_a_worker_was_away_is_not_opened_again() -> None:
    plane = Plane(policy=Policy(retention=1))
    plane.moving(7)  # the worker's writes to these pages are unproven: it is remembered
    join = plane.prefill(8)
    plane.renew(plane.d[0], False, 14.0)
    plane.expire(15.0)  # the lease of the prefill worker
    plane.expire(17.0)
    assert sorted(plane.rooms) == [7]

    again = plane.again(plane.p[0], 17.0, rooms=(RoomState(8, join.join_id, Poll.BOOTSTRAPPING),))
    plane.open_session(again)
    (update,) = (update for update in plane.hear(again).updates if update.room == 8)
    assert (update.poll, update.failure and update.failure.reason) == (Poll.FAILED, FailureReason.LEASE_EXPIRED)
    with pytest.raises(RoomNotFound):
        plane.join(again, join, 17.0)
    assert plane.clean(again, join, 17.0).state.name == "FREE"
    assert sorted(plane.rooms) == [7]


def test_instance_ids_are_uuids_in_lower_case() -> None:
    with pytest.raises(InvalidField):
        Plane().enter("x", Role.PREFILL, instance_id=str(uuid.uuid4()).upper())
