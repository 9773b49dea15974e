"""What the demo prints: a report for people, or one JSON object."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kvtransfer import KVPoll

from .checks import Check, Run
from .stack import Stack

_FAULTS_SHOWN = 5
_PARTS = {"prefill": "prefill", "transfer": "transfer", "check": "hashing", "first_decode_step": "first step"}


def as_json(run: Run, running: Stack, outcome: Sequence[Check]) -> dict[str, Any]:
    """Everything, for programs. Times in seconds, bandwidths in bytes/s."""
    everyone = [*run.prefill, *run.decode]
    return {
        "ok": all(check.ok for check in outcome),
        "tp": run.tp,
        "pids": running.pids,
        "agents": {notes.name: notes.agent for notes in everyone},
        "requests": [
            asdict(result) | {"polls": {notes.name: poll_names(notes.polls.get(result.room, [])) for notes in everyone}}
            for result in run.results
        ],
        "pairs": [{"from": notes.name, **link} for notes in run.prefill for link in notes.links],
        "damage": [{"rank": notes.name, **event} for notes in everyone for event in notes.damaged],
        "checks": {check.name: {"ok": check.ok, "faults": check.faults} for check in outcome},
    }


def as_text(run: Run, running: Stack, outcome: Sequence[Check]) -> str:
    """The same for people."""
    sections = [_answers(run), _times(run), _polls(run), _pairs(run), _checks(outcome)]
    processes = ", ".join(f"{name} {pid}" for name, pid in running.pids.items())
    return "\n\n".join([*sections, f"Processes: {processes}"])


def poll_names(polls: Sequence[int]) -> list[str]:
    return [KVPoll(poll).name for poll in polls]


def _answers(run: Run) -> str:
    lines = ["Answers"]
    for i, result in enumerate(run.results, 1):
        prompt = result.text if len(result.text) <= 60 else f"{result.text[:40]}...{result.text[-17:]}"
        lines.append(f"  {i:2} {result.prompt_tokens:5} tokens  {prompt!r}")
        lines.append(f"                  -> {result.error or repr(result.answer)}")
    return "\n".join(lines)


def _times(run: Run) -> str:
    """Of each answer, in ms, to the end of the first decode step."""
    head = "".join(f"{title:>12}" for title in _PARTS.values())
    lines = ["Time to first token, ms", f"     tokens{head}{'whole':>12}"]
    for i, result in enumerate(run.results, 1):
        if not result.error:
            parts = "".join(f"{result.parts_s[part] * 1e3:12.1f}" for part in _PARTS)
            lines.append(f"  {i:2} {result.prompt_tokens:6}{parts}{result.first_token_s * 1e3:12.1f}")
    return "\n".join(lines)


def _polls(run: Run) -> str:
    """Where each tensor-parallel worker's poll ended, room by room."""
    lines = ["Last KVPoll of each room, by tensor-parallel rank"]
    for i, result in enumerate(run.results, 1):
        sides = []
        for engine, ranks in (("prefill", run.prefill), ("decode", run.decode)):
            polls = [poll_names(notes.polls.get(result.room, []))[-1:] or ["none"] for notes in ranks]
            sides.append(f"{engine} {' '.join(last for (last,) in polls)}")
        lines.append(f"  {i:2} room {result.room:<19}  {', '.join(sides)}")
    return "\n".join(lines)


def _pairs(run: Run) -> str:
    lines = ["Pairs"]
    names = {notes.agent: notes.name for notes in run.decode}
    for notes in run.prefill:
        for link in notes.links:
            speed = f"{link['transport'] or 'unknown transport'}, {link['bandwidth_bytes_s'] / 1e9:.2f} GB/s at warm-up"
            moved = f"{link['moved_bytes'] / 1e6:.1f} MB moved"
            lines.append(f"  {notes.name} -> {names.get(link['instance_id'], link['worker_id'])}: {speed}; {moved}")
    return "\n".join(lines)


def _checks(outcome: Sequence[Check]) -> str:
    lines = ["Checks"]
    for check in outcome:
        lines.append(f"  {'right' if check.ok else 'WRONG'}  {check.name.replace('_', ' ')}")
        lines += [f"           {fault}" for fault in check.faults[:_FAULTS_SHOWN]]
        if len(check.faults) > _FAULTS_SHOWN:
            lines.append(f"           and {len(check.faults) - _FAULTS_SHOWN} more")
    right = all(check.ok for check in outcome)
    lines.append("Every answer is right." if right else "The run is WRONG.")
    return "\n".join(lines)
