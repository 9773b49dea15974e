"""Time that stands still while the process does."""

import pytest

from kvservice.service.clock import TICK, Clock


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
