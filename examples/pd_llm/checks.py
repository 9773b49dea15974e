"""Whether a run of the demo was right: each check by name, and where it failed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvtransfer import KVPoll

from .config import ModelConfig
from .notes import Notes
from .result import Result

_CLOCK_S = 0.002  # by which the parts of a time to first token may miss the whole
_SLOT_FIELDS_BYTES = 64


@dataclass(frozen=True, slots=True)
class Run:
    """What the checks look at."""

    config: ModelConfig
    tp: int
    page_tokens: int
    results: Sequence[Result]
    """In the order asked."""
    prefill: Sequence[Notes]
    """By rank."""
    decode: Sequence[Notes]
    """By rank."""
    expected_tokens: dict[int, list[int]]
    """By room, the reference's."""
    expected_logits: dict[int, list[str]]
    """Likewise: digests of the logits of each token."""

    @property
    def rooms(self) -> list[int]:
        return [result.room for result in self.results if not result.error]


@dataclass(frozen=True, slots=True)
class Check:
    """A check's outcome."""

    name: str
    faults: list[str]
    """What was wrong and where; empty if all was right."""

    @property
    def ok(self) -> bool:
        return not self.faults


def check(run: Run) -> list[Check]:
    """Make every check."""
    return [Check(make.__name__, make(run)) for make in CHECKS]


def every_request_answered(run: Run) -> list[str]:
    return [f"{result.text[:30]!r}: {result.error}" for result in run.results if result.error]


def tokens_equal_reference(run: Run) -> list[str]:
    return [
        f"room {result.room}: {result.output_ids}, the reference gives {run.expected_tokens.get(result.room)}"
        for result in run.results
        if not result.error and result.output_ids != run.expected_tokens.get(result.room)
    ]


def logits_equal_reference(run: Run) -> list[str]:
    """Bit for bit, of every token, in every rank; prefill's ranks make the first token's."""
    faults = []
    for room in run.rooms:
        wanted = run.expected_logits.get(room, [])
        for notes, ours in [(n, wanted[:1]) for n in run.prefill] + [(n, wanted) for n in run.decode]:
            found = notes.logits.get(room, [])
            wrong = [i for i, (a, b) in enumerate(zip(found, ours, strict=False)) if a != b]
            if wrong:
                faults.append(f"room {room}, {notes.name}: other bits from token {wrong[0]} of the answer on")
            elif len(found) != len(ours) or not ours:
                faults.append(f"room {room}, {notes.name}: logits of {len(found)} tokens, not {len(ours)}")
    return faults


def pages_equal_on_both_sides(run: Run) -> list[str]:
    faults = []
    for room, rank, ours, theirs in _pairs(run):
        if room not in ours.moved or room not in theirs.moved:
            faults.append(f"room {room}, rank {rank}: pages were not seen on both sides")
            continue
        sent, got = ours.moved[room], theirs.moved[room]
        if len(sent.pages) != len(got.pages):
            faults.append(f"room {room}, rank {rank}, group kv: {len(sent.pages)} pages sent, {len(got.pages)} offered")
        for i, (a, b) in enumerate(zip(sent.page_digests, got.page_digests, strict=False)):
            wrong = [_part(run.config, part) for part, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
            if wrong:
                where = f"room {room}, rank {rank}, group kv, page {i} of {len(got.pages)} (decode's {got.pages[i]})"
                faults.append(f"{where}: {len(wrong)} of {len(a)} parts differ, first {wrong[0]}")
    return faults


def every_page_was_sent(run: Run) -> list[str]:
    faults = []
    wanted = {r.room: -(-r.prompt_tokens // run.page_tokens) for r in run.results if not r.error}
    for room, rank, ours, _ in _pairs(run):
        moved = len(ours.moved[room].pages) if room in ours.moved else 0
        if room in wanted and moved != wanted[room]:
            faults.append(f"room {room}, rank {rank}, group kv: {moved} pages moved, the prompt has {wanted[room]}")
    return faults


def slots_equal_on_both_sides(run: Run) -> list[str]:
    return [
        f"room {room}, rank {rank}, group aux, slot {theirs.moved[room].slot}: bytes differ"
        for room, rank, ours, theirs in _pairs(run)
        if room in ours.moved
        and room in theirs.moved
        and ours.moved[room].slot_digests != theirs.moved[room].slot_digests
    ]


def untouched_memory_holds_its_canary(run: Run) -> list[str]:
    faults = []
    for notes in [*run.prefill, *run.decode]:
        if notes.untouched is None:
            faults.append(f"{notes.name}: nobody looked")
            continue
        for group, hits in (("kv", notes.untouched["page_hits"]), ("aux", notes.untouched["slot_hits"])):
            faults += [f"{notes.name}, group {group}: {item} was written to and belongs to no room" for item in hits]
    return faults


def no_page_was_used_twice(run: Run) -> list[str]:
    faults = []
    for notes in [*run.prefill, *run.decode]:
        used = [page for moved in notes.moved.values() for page in moved.pages]
        if len(used) != len(set(used)):
            faults.append(f"{notes.name}: {len(used) - len(set(used))} pages")
    return faults


def page_lists_differ_by_rank(run: Run) -> list[str]:
    faults = []
    for room in run.rooms:
        lists = [(n.name, n.moved[room].pages) for n in [*run.prefill, *run.decode] if room in n.moved]
        seen: dict[tuple[int, ...], str] = {}
        for name, pages in lists:
            twin = seen.setdefault(tuple(pages), name)
            if twin != name and len(pages) > 1:
                faults.append(f"room {room}: {name} and {twin} use the same pages {pages}")
    return faults


def every_poll_ended_in_success(run: Run) -> list[str]:
    return [
        f"room {room}, {notes.name}: polls {notes.polls.get(room)}"
        for room in run.rooms
        for notes in [*run.prefill, *run.decode]
        if (notes.polls.get(room) or [0])[-1] != KVPoll.SUCCESS
    ]


def processes_are_distinct(run: Run) -> list[str]:
    everyone = [*run.prefill, *run.decode]
    faults = [f"{notes.name} never met its peers" for notes in everyone if not notes.agent]
    if len({notes.pid for notes in everyone}) != 2 * run.tp:
        faults.append(f"pids {[notes.pid for notes in everyone]}")
    if len({notes.agent for notes in everyone}) != 2 * run.tp:
        faults.append(f"NIXL agents {[notes.agent for notes in everyone]}")
    return faults


def nixl_moved_every_byte(run: Run) -> list[str]:
    """Of each pair, pages times page size plus slots times slot size; the warm-up is counted apart."""
    heads = run.config.kv_heads // run.tp
    page_bytes = 2 * run.config.layers * run.page_tokens * heads * run.config.head_dim * 4
    slot_bytes = _SLOT_FIELDS_BYTES + run.config.vocab * 4
    faults = []
    for notes, peer in zip(run.prefill, run.decode, strict=True):
        wanted = sum(len(moved.pages) * page_bytes + slot_bytes for moved in notes.moved.values())
        moved = {link["instance_id"]: link["moved_bytes"] for link in notes.links}.get(peer.agent, 0)
        if moved != wanted:
            faults.append(f"{notes.name} to {peer.name}: {moved} bytes, {wanted} wanted")
    return faults


def times_add_up(run: Run) -> list[str]:
    return [
        f"room {result.room}: parts of {sum(result.parts_s.values()):.4f} s, whole {result.first_token_s:.4f} s"
        for result in run.results
        if not result.error and abs(sum(result.parts_s.values()) - result.first_token_s) > _CLOCK_S
    ]


CHECKS: list[Callable[[Run], list[str]]] = [
    every_request_answered,
    tokens_equal_reference,
    logits_equal_reference,
    pages_equal_on_both_sides,
    every_page_was_sent,
    slots_equal_on_both_sides,
    untouched_memory_holds_its_canary,
    no_page_was_used_twice,
    page_lists_differ_by_rank,
    every_poll_ended_in_success,
    processes_are_distinct,
    nixl_moved_every_byte,
    times_add_up,
]


def _pairs(run: Run) -> list[tuple[int, int, Notes, Notes]]:
    """Every room that was answered, or had arrived, with every rank: `(room, rank, prefill's notes, decode's)`."""
    rooms = dict.fromkeys([*run.rooms, *(room for notes in run.decode for room in notes.moved)])
    return [
        (room, rank, ours, theirs)
        for room in rooms
        for rank, (ours, theirs) in enumerate(zip(run.prefill, run.decode, strict=True))
    ]


def _part(config: ModelConfig, index: int) -> str:
    """Name of a tensor by its number in `KVPool.page_parts()`."""
    return f"{'kv'[index // config.layers]} of layer {index % config.layers}"
