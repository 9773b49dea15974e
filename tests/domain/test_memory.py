"""What rooms leave behind: little while they are remembered, nothing once they are forgotten, and never a cycle."""

import gc
import itertools
from collections.abc import Iterator

import pytest

from domain.plane import Plane
from kvservice.domain.policy import Policy
from kvservice.domain.types import Poll

ROOMS = 200


@pytest.fixture
def counting() -> Iterator[None]:
    """Nothing is collected unless the test does."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def tracked() -> int:
    """Objects that each full collection looks at."""
    gc.collect()
    return len(gc.get_objects())


def listening(tp: int = 1) -> Plane:
    plane = Plane(tp, Policy(lease_ttl=1e6, max_lease_ttl=1e6))
    for worker in (*plane.p, *plane.d):
        plane.open_session(worker)
    return plane


def come_and_go(plane: Plane, numbers: Iterator[int], now: float = 0.0) -> None:
    """Rooms that succeed, and some that fail."""
    for number in itertools.islice(numbers, ROOMS):
        senders, receivers = plane.moving(number, now)
        joined = list(zip((*plane.p, *plane.d), (*senders, *receivers), strict=True))
        for worker, _ in joined:
            plane.hear(worker)
        if number % 10:
            plane.finish(number, senders, receivers, now)
        else:
            for worker, join in joined:
                plane.say(worker, join, Poll.FAILED, now)
        for worker, join in joined:
            plane.clean(worker, join, now)
            plane.hear(worker)


@pytest.mark.parametrize("tp", [1, 3])
def test_a_closed_room_is_itself_and_its_workers_and_little_else(counting: None, tp: int) -> None:
    plane, numbers = listening(tp), itertools.count(1)
    come_and_go(plane, numbers)
    before = tracked()
    come_and_go(plane, numbers)
    grown = tracked() - before
    assert (plane.open_rooms, len(plane.rooms)) == (0, 2 * ROOMS)
    assert grown / ROOMS <= 2 + 2 * tp + 0.2  # and why some failed


def test_rooms_leave_no_cycles_and_once_forgotten_nothing(counting: None) -> None:
    plane, numbers = listening(), itertools.count(1)
    lives = []
    for life in range(4):
        now = life * 2 * plane.policy.retention
        come_and_go(plane, numbers, now)
        plane.expire(now + plane.policy.retention)
        assert not plane.rooms
        plane.changes._forgotten.clear()  # bounded
        assert gc.collect() == 0
        lives.append(len(gc.get_objects()))
    assert lives[-1] <= lives[0]
