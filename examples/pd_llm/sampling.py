"""What a request may ask for: the sampling parameters that this greedy demo honours."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .request_errors import BadRequest, shown

DEFAULT_NEW_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Sampling:
    max_new_tokens: int = DEFAULT_NEW_TOKENS
    """Most tokens of an answer; at least 1."""


def parse(parameters: Mapping[str, Any] | None) -> Sampling:
    """Read `sampling_params` in SGLang's names. Temperature is 0 whether said or not.

    Raises:
        BadRequest: Another parameter, or a value that is not supported.
    """
    if not isinstance(parameters, Mapping | None):
        raise BadRequest(f"sampling_params: an object is wanted, not {shown(parameters)}")
    left = dict(parameters or {})
    temperature = left.pop("temperature", 0)
    if isinstance(temperature, bool) or temperature != 0:
        raise BadRequest(f"sampling_params.temperature: only 0 (greedy) is supported, not {shown(temperature)}")
    max_new_tokens = left.pop("max_new_tokens", DEFAULT_NEW_TOKENS)
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise BadRequest(f"sampling_params.max_new_tokens: a positive integer is wanted, not {shown(max_new_tokens)}")
    for name, value in left.items():
        raise BadRequest(f"sampling_params.{name}: not supported (value {shown(value)})")
    return Sampling(max_new_tokens)
