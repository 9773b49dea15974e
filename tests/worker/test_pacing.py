"""How closely a mover is told to watch, by what is awaited."""

import itertools

import pytest
from kvtransfer.actions import Action, Pace
from kvtransfer.pacing import CLOSELY, OFTEN, SELDOM, YOUNG, Pacing
from kvtransfer.roster import FetchLinks

ROOM = 7
LATER = 2 * YOUNG


class Paced:
    """A Pacing, and what the mover was told last."""

    def __init__(self) -> None:
        self.actions: list[Action | FetchLinks] = []
        self.pacing = Pacing(self.actions)

    def pause(self, now: float) -> float:
        self.pacing.update(now)
        said = [action.pause for action in self.actions if isinstance(action, Pace)]
        assert all(before != after for before, after in itertools.pairwise(said)), "told twice"
        return said[-1] if said else SELDOM


def test_an_offer_is_watched_closely_while_it_is_young_and_often_while_it_waits() -> None:
    paced = Paced()
    assert paced.pause(0.0) == SELDOM
    paced.pacing.offered(ROOM, 0.0)
    assert paced.pause(0.0) == CLOSELY
    assert paced.pacing.busy
    assert paced.pause(LATER) == OFTEN
    assert not paced.pacing.busy


def test_pages_that_move_are_watched_closely_for_as_long_as_they_do() -> None:
    paced = Paced()
    paced.pacing.offered(ROOM, 0.0)
    paced.pacing.moving(ROOM)
    assert paced.pause(1000 * YOUNG) == CLOSELY
    paced.pacing.over(ROOM)
    assert paced.pause(1000 * YOUNG) == SELDOM


@pytest.mark.parametrize("moving", [True, False])
def test_a_room_that_failed_is_read_for_until_its_pages_go_back(moving: bool) -> None:
    paced = Paced()
    paced.pacing.offered(ROOM, 0.0)
    if moving:
        paced.pacing.moving(ROOM)
    paced.pacing.failed(ROOM)
    assert paced.pause(LATER) == OFTEN
    paced.pacing.over(ROOM)
    assert paced.pause(LATER) == SELDOM
