"""The row of metadata that reaches decode with a room's pages: the first token, its logits, and whose they are."""

from dataclasses import dataclass

import torch

from .kv_pool import AUX_FIELDS, KVPool

_MAGIC = 0x4B5654415558_0001  # "KVTAUX", version 1


@dataclass(frozen=True, slots=True)
class AuxRow:
    """What prefill tells decode of one room, besides the logits of the first token."""

    room: int
    prompt_tokens: int
    first_token: int
    prefill_ended_ns: int
    """On CLOCK_MONOTONIC, which all processes of a machine share."""


def write(pool: KVPool, slot: int, row: AuxRow, logits: torch.Tensor) -> None:
    """Fill a slot; `logits` are those from which the first token was picked."""
    fields = [_MAGIC, row.room, row.prompt_tokens, row.first_token, row.prefill_ended_ns]
    fields += [0] * (AUX_FIELDS - len(fields))
    pool.fields[slot] = torch.tensor(fields, dtype=torch.int64)
    pool.logits[slot] = logits


def read(pool: KVPool, slot: int, room: int) -> AuxRow:
    """Read a slot that prefill has filled for `room`.

    Raises:
        ValueError: It was not, whatever the transfer said.
    """
    magic, written_for, prompt_tokens, first_token, prefill_ended_ns = pool.fields[slot].tolist()[:5]
    if (magic, written_for) != (_MAGIC, room):
        raise ValueError(f"aux slot {slot} does not hold the first token of room {room}")
    return AuxRow(room, prompt_tokens, first_token, prefill_ended_ns)
