"""Reading what the ranks of the engines wrote down; `evidence.py` writes it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Moved:
    """What a room's pages and slot held on one side when its transfer had ended well."""

    pages: list[int]
    slot: int
    page_digests: list[list[str]]
    """By page in token order, then by tensor: keys by layer, values by layer."""
    slot_digests: list[str]


@dataclass(slots=True)
class Notes:
    """All that one rank wrote down."""

    engine: str
    rank: int
    pid: int = 0
    agent: str = ""
    polls: dict[int, list[int]] = field(default_factory=dict)
    """By room: the KVPolls that it went through."""
    chunks: dict[int, list[int]] = field(default_factory=dict)
    """By room: tokens of each chunk computed."""
    tokens: dict[int, list[int]] = field(default_factory=dict)
    logits: dict[int, list[str]] = field(default_factory=dict)
    """By room: digests of the logits from which each of `tokens` was picked."""
    moved: dict[int, Moved] = field(default_factory=dict)
    damaged: list[dict[str, Any]] = field(default_factory=list)
    untouched: dict[str, Any] | None = None
    """Counts of `pages` and `slots` never handed out; `page_hits` and `slot_hits`: those written to all the same."""
    links: list[dict[str, Any]] = field(default_factory=list)
    """Prefill: its peers, as they were when its last room had ended."""

    @property
    def name(self) -> str:
        return f"{self.engine}-tp{self.rank}"


def read(folder: Path, engine: str, rank: int) -> Notes:
    """A rank's notes; empty if it never came to write any."""
    notes = Notes(engine, rank)
    path = folder / f"{notes.name}.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        _add(notes, json.loads(line))
    return notes


def _add(notes: Notes, line: dict[str, Any]) -> None:
    event, room = line.pop("event"), line.pop("room", 0)
    match event:
        case "started":
            notes.pid, notes.agent = line["pid"], line["agent"]
        case "poll":
            notes.polls.setdefault(room, []).append(line["poll"])
        case "chunk":
            notes.chunks.setdefault(room, []).append(line["tokens"])
        case "token":
            notes.tokens.setdefault(room, []).append(line["token"])
            notes.logits.setdefault(room, []).append(line["logits"])
        case "moved":
            notes.moved[room] = Moved(**line)
        case "damaged":
            notes.damaged.append({"room": room, **line})
        case "untouched":
            notes.untouched = line
        case "links":
            notes.links = line["links"]
