"""Each check notices what it is there for, says where, and no other complains."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from kvtransfer import KVPoll

from examples.pd_llm.checks import Run, check
from examples.pd_llm.config import SMOLLM2
from examples.pd_llm.notes import Moved, Notes
from examples.pd_llm.result import Result

ROOM = 77
PAGE_BYTES = 2 * 30 * 16 * 64 * 4  # keys and values, layers, tokens, dimensions of the one head, fp32
SLOT_BYTES = 64 + 49152 * 4
MOVED_BYTES = 2 * PAGE_BYTES + SLOT_BYTES


def notes(engine: str, rank: int) -> Notes:
    """A rank at TP 3 that moved one room of 2 pages."""
    first = 10 * rank + (5 if engine == "decode" else 0)
    decoding = engine == "decode"
    return Notes(
        engine=engine,
        rank=rank,
        pid=100 + first,
        agent=f"agent of {engine} {rank}",
        polls={ROOM: [KVPoll.TRANSFERRING, KVPoll.SUCCESS]},
        chunks={} if decoding else {ROOM: [20]},
        tokens={ROOM: [5, 6] if decoding else [5]},
        logits={ROOM: ["aa", "bb"] if decoding else ["aa"]},
        moved={ROOM: Moved([first, first + 1], first, [["01"] * 60, ["02"] * 60], ["03", "04"])},
        untouched={"pages": 9, "slots": 9, "page_hits": [], "slot_hits": []},
        links=[] if decoding else [{"instance_id": f"agent of decode {rank}", "moved_bytes": MOVED_BYTES}],
    )


@pytest.fixture
def run() -> Run:
    result = Result(
        "Hello",
        room=ROOM,
        prompt_tokens=20,
        output_ids=[5, 6],
        first_token_s=0.5,
        parts_s={"prefill": 0.3, "transfer": 0.2},
    )
    return Run(
        config=SMOLLM2,
        tp=3,
        page_tokens=16,
        results=[result],
        prefill=[notes("prefill", rank) for rank in range(3)],
        decode=[notes("decode", rank) for rank in range(3)],
        expected_tokens={ROOM: [5, 6]},
        expected_logits={ROOM: ["aa", "bb"]},
    )


def faults(run: Run) -> dict[str, list[str]]:
    return {outcome.name: outcome.faults for outcome in check(run) if not outcome.ok}


def test_a_right_run_passes(run: Run) -> None:
    assert faults(run) == {}


def _other_logits(run: Run) -> None:
    run.decode[1].logits[ROOM][1] = "cc"


def _logits_of_a_rank_missing(run: Run) -> None:
    run.prefill[2].logits[ROOM].clear()


def _other_page(run: Run) -> None:
    run.decode[2].moved[ROOM].page_digests[1][59] = "ff"


def _page_missing(run: Run) -> None:
    del run.prefill[0].moved[ROOM]
    run.prefill[0].links.clear()


def _other_slot(run: Run) -> None:
    run.decode[0].moved[ROOM].slot_digests[1] = "ff"


def _touched_page(run: Run) -> None:
    run.decode[1].untouched = {"pages": 9, "slots": 9, "page_hits": [8], "slot_hits": []}


def _nobody_looked(run: Run) -> None:
    run.prefill[1].untouched = None


def _page_twice(run: Run) -> None:
    run.decode[0].moved[ROOM].pages[:] = [5, 5]


def _same_pages(run: Run) -> None:
    run.decode[0].moved[ROOM].pages[:] = run.decode[1].moved[ROOM].pages


def _poll_not_ended(run: Run) -> None:
    run.prefill[2].polls[ROOM].pop()


def _same_process(run: Run) -> None:
    run.decode[2].pid = run.prefill[2].pid


def _byte_too_few(run: Run) -> None:
    run.prefill[1].links[0]["moved_bytes"] -= 1


@pytest.mark.parametrize(
    ("damage", "name", "fault"),
    [
        (_other_logits, "logits_equal_reference", "room 77, decode-tp1: other bits from token 1 of the answer on"),
        (_logits_of_a_rank_missing, "logits_equal_reference", "room 77, prefill-tp2: logits of 0 tokens, not 1"),
        (
            _other_page,
            "pages_equal_on_both_sides",
            "room 77, rank 2, group kv, page 1 of 2 (decode's 26): 1 of 60 parts differ, first v of layer 29",
        ),
        (_other_slot, "slots_equal_on_both_sides", "room 77, rank 0, group aux, slot 5: bytes differ"),
        (
            _touched_page,
            "untouched_memory_holds_its_canary",
            "decode-tp1, group kv: 8 was written to and belongs to no room",
        ),
        (_nobody_looked, "untouched_memory_holds_its_canary", "prefill-tp1: nobody looked"),
        (_page_twice, "no_page_was_used_twice", "decode-tp0: 1 pages"),
        (_same_pages, "page_lists_differ_by_rank", "room 77: decode-tp1 and decode-tp0 use the same pages [15, 16]"),
        (_poll_not_ended, "every_poll_ended_in_success", f"room 77, prefill-tp2: polls {[KVPoll.TRANSFERRING]}"),
        (_same_process, "processes_are_distinct", "pids [100, 110, 120, 105, 115, 120]"),
        (_byte_too_few, "nixl_moved_every_byte", "prefill-tp1 to decode-tp1: 688191 bytes, 688192 wanted"),
    ],
)
def test_each_fault_is_found_by_its_check_alone(run: Run, damage: Callable[[Run], None], name: str, fault: str) -> None:
    damage(run)
    assert faults(run) == {name: [fault]}


def test_pages_that_one_side_never_showed_are_a_fault(run: Run) -> None:
    _page_missing(run)
    found = faults(run)
    assert found["pages_equal_on_both_sides"] == ["room 77, rank 0: pages were not seen on both sides"]
    assert found["every_page_was_sent"] == ["room 77, rank 0, group kv: 0 pages moved, the prompt has 2"]


@pytest.mark.parametrize(
    ("change", "name", "fault"),
    [
        ({"output_ids": [5, 7]}, "tokens_equal_reference", "room 77: [5, 7], the reference gives [5, 6]"),
        ({"first_token_s": 0.503}, "times_add_up", "room 77: parts of 0.5000 s, whole 0.5030 s"),
    ],
)
def test_each_wrong_answer_is_found(run: Run, change: dict[str, object], name: str, fault: str) -> None:
    wrong = replace(run, results=[replace(run.results[0], **change)])  # type: ignore[arg-type]
    assert faults(wrong) == {name: [fault]}


def test_a_request_without_an_answer_is_a_fault(run: Run) -> None:
    unanswered = replace(run, results=[*run.results, Result("Where?", error="HTTP 502: gone")])
    assert faults(unanswered) == {"every_request_answered": ["'Where?': HTTP 502: gone"]}
