"""Who may still write to whose pages."""

from kvservice.domain.pages import PageLedger
from kvservice.domain.types import Peer, ReleaseState

RECEIVER = Peer("d/dp0/pp0/tp0", "receiver")
SENDER = Peer("p/dp0/pp0/tp0", "sender")
OTHER = Peer("p/dp0/pp0/tp1", "other")
KEY = (7, 100)


def granted(*senders: Peer) -> PageLedger:
    ledger = PageLedger()
    for sender in senders:
        ledger.grant(KEY, RECEIVER, sender)
    return ledger


def test_pages_that_nobody_was_told_of_are_free() -> None:
    assert PageLedger().release(KEY).state is ReleaseState.FREE


def test_a_receiver_waits_for_every_sender_by_name() -> None:
    ledger = granted(SENDER, OTHER)
    ledger.receiver_released(KEY)
    assert ledger.release(KEY).state is ReleaseState.WAITING
    assert ledger.release(KEY).waiting_for == (SENDER.worker_id, OTHER.worker_id)
    assert ledger.prove(KEY, SENDER.instance_id) == [(RECEIVER, KEY)]
    assert ledger.release(KEY).waiting_for == (OTHER.worker_id,)
    assert ledger.sender_released(7, OTHER.instance_id, drained=True) == [(RECEIVER, KEY)]
    assert ledger.release(KEY).state is ReleaseState.FREE
    assert len(ledger) == 0


def test_a_release_that_was_not_drained_is_no_proof() -> None:
    ledger = granted(SENDER)
    ledger.receiver_released(KEY)
    assert ledger.sender_released(7, SENDER.instance_id, drained=False) == [(RECEIVER, KEY)]
    assert ledger.release(KEY).state is ReleaseState.QUARANTINED
    assert ledger.owes(SENDER.instance_id)


def test_a_sender_that_fell_silent_owes_its_proof_until_it_was_seen_to_exit() -> None:
    ledger = granted(SENDER)
    ledger.receiver_released(KEY)
    ledger.process_over(SENDER.instance_id, proven=False)
    assert ledger.release(KEY).state is ReleaseState.QUARANTINED
    ledger.process_over(SENDER.instance_id, proven=True)
    assert ledger.release(KEY).state is ReleaseState.FREE


def test_a_silent_sender_that_comes_back_is_waited_for_again() -> None:
    ledger = granted(SENDER)
    ledger.receiver_released(KEY)
    ledger.process_over(SENDER.instance_id, proven=False)
    assert ledger.process_back(SENDER.instance_id) == [(RECEIVER, KEY)]
    assert ledger.release(KEY).state is ReleaseState.WAITING


def test_a_new_process_at_the_senders_rank_proves_nothing() -> None:
    ledger = granted(SENDER)
    ledger.process_over("a new process", proven=True)
    assert ledger.pending(KEY)


def test_a_release_of_another_room_proves_nothing_here() -> None:
    ledger = granted(SENDER)
    ledger.sender_released(8, SENDER.instance_id, drained=True)
    assert ledger.pending(KEY)


def test_only_a_receiver_that_released_is_told() -> None:
    ledger = granted(SENDER)
    assert ledger.prove(KEY, SENDER.instance_id) == []


def test_a_receiver_that_is_gone_for_good_leaves_nothing_behind() -> None:
    ledger = granted(SENDER, OTHER)
    ledger.receiver_over(RECEIVER.instance_id)
    assert len(ledger) == 0
    assert not ledger.owes(SENDER.instance_id)


def test_a_silent_receiver_keeps_its_claim_for_it_may_come_back() -> None:
    ledger = granted(SENDER)
    ledger.process_over(RECEIVER.instance_id, proven=False)
    ledger.receiver_released(KEY)
    assert ledger.release(KEY).state is ReleaseState.WAITING
    assert ledger.released_by(RECEIVER.instance_id) == [KEY]
