"""The queue of expiries."""

import random

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


def test_keys_that_cannot_be_compared_may_share_an_instant() -> None:
    queue: ExpiryQueue[object] = ExpiryQueue()
    queue.set(("room", 1), 1.0)
    queue.set(("lease", "w"), 1.0)
    assert len(list(queue.pop_due(1.0))) == 2
