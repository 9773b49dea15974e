"""What the engines' answers must equal: one process, one rank, its own pool, each request on its own.

python -m examples.pd_llm.reference --requests FILE --out FILE
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from . import vocabulary, weights
from .config import MODELS
from .evidence import digest
from .kv_pool import KVPool
from .model import Model
from .tp import Alone

_PAGE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Request:
    room: int
    text: str
    chunks: list[int]
    """Tokens of each chunk that prefill computed: other chunks, other bits."""
    new_tokens: int


@dataclass(frozen=True, slots=True)
class Expected:
    """The right answer to a request."""

    room: int
    tokens: list[int]
    logits: list[str]
    """`digest` of the logits from which each token was picked."""


def answer(model: Model, eos: int, prompt: list[int], request: Request, pages: list[int]) -> Expected:
    """Compute a request from beginning to end."""
    done = 0
    for count in request.chunks:
        logits = model.forward(prompt[done : done + count], done, pages)
        done += count
    expected = Expected(request.room, [int(logits.argmax())], [digest(logits)])
    while len(expected.tokens) < request.new_tokens and expected.tokens[-1] != eos:
        logits = model.forward(expected.tokens[-1:], done, pages)
        done += 1
        expected.tokens.append(int(logits.argmax()))
        expected.logits.append(digest(logits))
    return expected


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.pd_llm.reference", description=__doc__)
    parser.add_argument("--requests", type=Path, required=True, help="JSON: a list of Request")
    parser.add_argument("--out", type=Path, required=True, help="for JSON: a list of Expected")
    parser.add_argument("--model", choices=MODELS, default="smollm2", help="as the engines' (default smollm2)")
    parser.add_argument("--device", default="cpu", help="as the engines' (default cpu)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device(args.device)
    config = MODELS[args.model]
    words = vocabulary.load(config)
    requests = [Request(**fields) for fields in json.loads(args.requests.read_text())]
    prompts = [words.encode(request.text) for request in requests]
    most = max(len(prompt) + request.new_tokens for prompt, request in zip(prompts, requests, strict=True))
    pages = list(range(-(-most // _PAGE_TOKENS)))
    pool = KVPool(config, len(pages), _PAGE_TOKENS, slots=1, heads=range(config.kv_heads), device=device)
    loaded = {name: tensor.to(device) for name, tensor in weights.of(config).items()}
    model = Model(config, loaded, pool, Alone())
    answers = [
        answer(model, config.eos, prompt, request, pages) for prompt, request in zip(prompts, requests, strict=True)
    ]
    args.out.write_text(json.dumps([asdict(expected) for expected in answers]))


if __name__ == "__main__":
    main()
