"""No state of a room lasts for ever."""

import pytest

from domain.plane import Plane
from kvservice.domain.policy import Policy
from kvservice.domain.types import FailureReason, Join, Poll, Timeouts


@pytest.mark.parametrize(
    ("reached", "after", "reason", "culprit"),
    [
        ("alone", 120.0, FailureReason.HANDSHAKE_TIMEOUT, ""),
        ("joined", 300.0, FailureReason.INPUT_TIMEOUT, "p/dp0/pp0/tp0"),
        ("moving", 60.0, FailureReason.NO_PROGRESS, "p/dp0/pp0/tp0"),
    ],
)
def test_every_state_has_a_deadline_that_names_who_is_late(
    reached: str, after: float, reason: FailureReason, culprit: str
) -> None:
    plane = Plane(policy=Policy(max_lease_ttl=1000, lease_ttl=1000))
    plane.prefill(7)
    if reached != "alone":
        receiver = plane.decode(7)
    if reached == "moving":
        plane.say(plane.p[0], Join(7, plane.rooms[7].participants["p/dp0/pp0/tp0"].join_id), Poll.TRANSFERRING)
    plane.expire(after - 0.1)
    assert plane.rooms[7].failure is None
    plane.expire(after)
    assert (plane.failed(7).reason, plane.failed(7).worker_id) == (reason, culprit)
    if reached != "alone":
        plane.say(plane.d[0], receiver, Poll.FAILED, after)
    assert plane.poll(7) is Poll.FAILED


def test_progress_moves_the_deadline_and_its_repeat_does_not() -> None:
    plane = Plane(policy=Policy(max_lease_ttl=1000, lease_ttl=1000))
    senders, _ = plane.moving(7)
    plane.say(plane.p[0], senders[0], Poll.TRANSFERRING, 50.0, moved=100)
    plane.say(plane.p[0], senders[0], Poll.TRANSFERRING, 100.0, moved=100)
    plane.expire(109.9)
    assert plane.rooms[7].failure is None
    plane.expire(110.0)
    assert plane.failed(7).reason is FailureReason.NO_PROGRESS


def test_the_whole_takes_no_longer_than_the_shortest_that_anybody_asked_for() -> None:
    plane = Plane(policy=Policy(max_lease_ttl=1000, lease_ttl=1000))
    inf = float("inf")
    plane.prefill(7, timeouts=Timeouts(inf, inf, inf, 30.0))
    plane.decode(7, timeouts=Timeouts(inf, inf, inf, 40.0))
    plane.expire(30.0)
    assert plane.failed(7).reason is FailureReason.TRANSFER_TIMEOUT
