"""What `/generate` answers, in SGLang's shape. Beside its fields: `room`, and `time_to_first_token` with its parts."""

import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """What the router knows of a request. Times in answers are in seconds."""

    rid: str
    room: int
    prompt_tokens: int
    accepted_ns: int
    """When the router took it in, on CLOCK_MONOTONIC."""

    def part(self, answer: dict[str, Any]) -> dict[str, Any]:
        """An answer that goes on: all of its text and tokens until now."""
        return {
            "text": answer["text"],
            "output_ids": answer["output_ids"],
            "meta_info": {
                "id": self.rid,
                "finish_reason": None,
                "prompt_tokens": self.prompt_tokens,
                "completion_tokens": len(answer["output_ids"]),
                "cached_tokens": 0,
                "room": self.room,
            },
        }

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        """A whole answer, streamed or not. The time to first token counts to the end of the first decode step."""
        stages = {
            "prefill": answer["prefill_ended_ns"] - self.accepted_ns,
            "transfer": answer["arrived_ns"] - answer["prefill_ended_ns"],
            "check": answer["checked_ns"] - answer["arrived_ns"],
            "first_decode_step": answer["stepped_ns"] - answer["checked_ns"],
        }
        shaped = self.part(answer)
        shaped["meta_info"] |= {
            "finish_reason": answer["finish_reason"],
            "e2e_latency": (time.monotonic_ns() - self.accepted_ns) / 1e9,
            "time_to_first_token": {
                "total": (answer["stepped_ns"] - self.accepted_ns) / 1e9,
                **{name: ns / 1e9 for name, ns in stages.items()},
            },
        }
        return shaped
