"""The queue of expiries."""

import random
import tracemalloc

from kvservice.domain.lease import ExpiryQueue


def test_a_renewed_head_does_not_hide_an_expired_second() -> None:
    queue: ExpiryQueue[str] = ExpiryQueue()
    queue.set("a", 1.0)
    queue.set("b", 2.0)
    queue.set("a", 9.0)
    assert queue.next_due() == 2.0
    assert list(queue.pop_due(3.0)) == ["b"]
    assert queue.next_due() == 9.0


def test_a_dropped_key_never_comes() -> None:
    queue: ExpiryQueue[str] = ExpiryQueue()
    queue.set("a", 1.0)
    queue.drop("a")
    queue.drop("unknown")
    assert queue.next_due() is None
    assert list(queue.pop_due(100.0)) == []
    assert len(queue) == 0


def test_a_key_set_while_others_expire_is_seen_if_it_is_due() -> None:
    queue: ExpiryQueue[str] = ExpiryQueue()
    queue.set("a", 1.0)
    seen = []
    for key in queue.pop_due(5.0):
        seen.append(key)
        if key == "a":
            queue.set("b", 2.0)
            queue.set("c", 6.0)
    assert seen == ["a", "b"]
    assert queue.next_due() == 6.0


def test_keys_come_in_order_of_expiry_and_each_once_however_often_they_moved() -> None:
    draw = random.Random(7)
    queue: ExpiryQueue[int] = ExpiryQueue()
    due = {}
    for _ in range(5000):
        key = draw.randrange(50)
        due[key] = draw.random()
        queue.set(key, due[key])
    assert list(queue.pop_due(1.0)) == sorted(due, key=lambda key: due[key])
    assert queue.next_due() is None


def test_nothing_is_early_late_or_lost_whatever_moves_either_way() -> None:
    draw = random.Random(11)
    queue: ExpiryQueue[int] = ExpiryQueue()
    due: dict[int, float] = {}
    for now in range(3000):
        for _ in range(draw.randrange(4)):
            key = draw.randrange(40)
            if draw.random() < 0.3:
                due.pop(key, None)
                queue.drop(key)
            else:
                due[key] = now + draw.randrange(60)
                queue.set(key, due[key])
        assert queue.next_due() == min(due.values(), default=None)
        expired = {key for key, instant in due.items() if instant <= now}
        assert sorted(queue.pop_due(now)) == sorted(expired)
        for key in expired:
            del due[key]
        assert len(queue) == len(due)


def test_a_lease_that_is_renewed_for_ever_takes_no_memory() -> None:
    queue: ExpiryQueue[int] = ExpiryQueue()
    tracemalloc.start()
    try:
        peaks = []
        for _ in range(2):
            tracemalloc.reset_peak()
            for instant in range(20000):
                queue.set(1, 20.0 + instant)
                queue.set(2, 40000.0 - instant)
            peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 20000


def test_keys_that_cannot_be_compared_may_share_an_instant() -> None:
    queue: ExpiryQueue[object] = ExpiryQueue()
    queue.set(("room", 1), 1.0)
    queue.set(("lease", "w"), 1.0)
    assert len(list(queue.pop_due(1.0))) == 2
