"""SmolLM2's tokenizer, built from the vocabulary and merges in its GGUF: single digits, then byte-level BPE."""

import os
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from .weights_file import CACHE, find_gguf

_CONTROL = 3  # tokenizer.ggml.token_type of <|im_start|> and the like


class SmolLM2Words:
    """The tokenizer as the engines use it: a `Vocabulary`."""

    def __init__(self) -> None:
        self._tokenizer = load()

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids))


def load(cache: Path = CACHE) -> Tokenizer:
    """The tokenizer, kept in `cache` once built: reading 49 152 strings out of a GGUF takes a second or two."""
    path = cache / "tokenizer.json"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"tokenizer.{os.getpid()}.partial")
        _build(find_gguf()).save(str(partial), pretty=False)
        os.replace(partial, path)
    return Tokenizer.from_file(str(path))


def _build(gguf: Path) -> Tokenizer:
    from gguf import GGUFReader

    fields = GGUFReader(gguf).fields
    tokens: list[str] = fields["tokenizer.ggml.tokens"].contents()
    kinds: list[int] = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return tokenizer
