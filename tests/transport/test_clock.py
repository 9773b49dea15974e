"""Time that stands still while the process does."""

import pytest

from kvservice.service.clock import STRAY, TICK, Clock


class Hand:
    """A clock's source that the test turns."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at

    def turn(self, seconds: float) -> None:
        self.at += seconds


@pytest.fixture
def hand() -> Hand:
    return Hand()


def test_it_runs_while_it_is_read(hand: Hand) -> None:
    clock = Clock(hand)
    begun = clock.now()
    for _ in range(400):
        hand.turn(TICK)
        clock.now()
    assert clock.now() == pytest.approx(begun + 400 * TICK)


def test_a_stop_takes_no_time(hand: Hand) -> None:
    clock = Clock(hand)
    begun = clock.now()
    hand.turn(3600)
    assert clock.now() == pytest.approx(begun + TICK)
    hand.turn(TICK)
    assert clock.now() == pytest.approx(begun + 2 * TICK)


def test_it_never_goes_back(hand: Hand) -> None:
    clock = Clock(hand)
    last = clock.now()
    for step in (0.0, 0.1, 0.5, 0.50001, 7.0, 0.0, 0.3):
        hand.turn(step)
        assert clock.now() >= last
        last = clock.now()


def test_an_instant_is_the_same_time_of_day_whenever_it_is_told(hand: Hand) -> None:
    wall = Hand()
    clock = Clock(hand, wall)
    opened = clock.now()
    told = opened + clock.wall_offset()
    assert told == wall.at
    for _ in range(100):
        hand.turn(TICK)
        wall.turn(TICK + 1e-6)
        assert opened + clock.wall_offset() == told


def test_a_wall_clock_that_was_set_is_believed(hand: Hand) -> None:
    wall = Hand()
    clock = Clock(hand, wall)
    clock.wall_offset()
    for step in (3600.0, -3600.0, 2 * STRAY):
        wall.turn(step)
        assert clock.now() + clock.wall_offset() == pytest.approx(wall.at)
