"""What came of one request to `/generate`."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    text: str
    """The prompt."""
    error: str = ""
    """Why there is no answer."""
    room: int = 0
    """0 if it was given none."""
    answer: str = ""
    output_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""
    prompt_tokens: int = 0
    latency_s: float = 0
    """From the router's taking it in to its answer."""
    first_token_s: float = 0
    """From there to the end of the first decode step."""
    parts_s: dict[str, float] = field(default_factory=dict)
    """Of `first_token_s`, in order."""


def from_response(text: str, status: int, body: dict[str, Any]) -> Result:
    """Read the router's answer."""
    if status != 200:
        return Result(text, error=f"HTTP {status}: {body['error']['message']}", room=body["error"].get("room", 0))
    meta = body["meta_info"]
    parts = dict(meta["time_to_first_token"])
    return Result(
        text=text,
        room=meta["room"],
        answer=body["text"],
        output_ids=body["output_ids"],
        finish_reason=meta["finish_reason"]["type"],
        prompt_tokens=meta["prompt_tokens"],
        latency_s=meta["e2e_latency"],
        first_token_s=parts.pop("total"),
        parts_s=parts,
    )
