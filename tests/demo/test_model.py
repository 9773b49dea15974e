"""What the demo's checks rest on: equal chunk sizes give equal bits, on any pages and at any tensor-parallel size."""

import multiprocessing
import random
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from examples.pd_llm import weights, weights_file
from examples.pd_llm.config import SMOLLM2
from examples.pd_llm.kv_pool import KVPool
from examples.pd_llm.model import Model
from examples.pd_llm.tp import Alone, Group, Processes
from examples.pd_llm.weights import Weights

PROMPT = "Let me tell you a lonnng story about "
CPU = torch.device("cpu")


def build(weights: Weights, heads: range = range(3), group: Group | None = None) -> tuple[Model, KVPool]:
    pool = KVPool(SMOLLM2, pages=24, page_tokens=16, slots=1, heads=heads, device=CPU)
    return Model(SMOLLM2, weights, pool, group or Alone()), pool


def generate(model: Model, prompt: list[int], pages: list[int], chunk: int, steps: int = 2) -> torch.Tensor:
    """Logits of each generated token, `[steps + 1, vocab]`."""
    for start in range(0, len(prompt), chunk):
        logits = model.forward(prompt[start : start + chunk], start, pages)
    rows = [logits]
    for step in range(steps):
        rows.append(model.forward([int(rows[-1].argmax())], len(prompt) + step, pages))
    return torch.stack(rows)


def shuffled_pages(seed: int) -> list[int]:
    return random.Random(seed).sample(range(24), 12)


def prompt_of(tokenizer: Tokenizer, tokens: int) -> list[int]:
    ids: list[int] = tokenizer.encode(PROMPT * tokens).ids
    return ids[:tokens]


def test_the_model_answers(model_weights: Weights, smollm_tokenizer: Tokenizer) -> None:
    model, _ = build(model_weights)
    question = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    logits = generate(model, smollm_tokenizer.encode(question).ids, list(range(4)), chunk=16, steps=5)
    assert smollm_tokenizer.decode(logits.argmax(-1).tolist()) == "The capital of France is Paris"


def test_the_tokenizer_gives_back_what_it_was_given(smollm_tokenizer: Tokenizer) -> None:
    text = "<|im_start|>user\nnaïve 2024 \t→ 日本<|im_end|>"
    encoded = smollm_tokenizer.encode(text)
    assert smollm_tokenizer.decode(encoded.ids, skip_special_tokens=False) == text
    assert encoded.ids[0] == 1  # <|im_start|>, whole
    assert len(smollm_tokenizer.encode("2024").ids) == 4


@pytest.mark.parametrize(("tokens", "chunk"), [(10, 256), (37, 16), (150, 64)])
def test_shuffled_pages_give_the_same_bits(
    model_weights: Weights, smollm_tokenizer: Tokenizer, tokens: int, chunk: int
) -> None:
    prompt = prompt_of(smollm_tokenizer, tokens)
    in_order = generate(build(model_weights)[0], prompt, list(range(24)), chunk)
    shuffled = generate(build(model_weights)[0], prompt, shuffled_pages(tokens), chunk)
    assert torch.equal(in_order.view(torch.int32), shuffled.view(torch.int32))


def test_decoding_from_moved_pages_gives_the_same_bits(model_weights: Weights, smollm_tokenizer: Tokenizer) -> None:
    prompt = prompt_of(smollm_tokenizer, 37)
    model, pool = build(model_weights)
    here, there = shuffled_pages(1), shuffled_pages(2)
    expected = generate(model, prompt, here, chunk=16)

    other, other_pool = build(model_weights)
    for ours, theirs in zip(pool.page_parts(), other_pool.page_parts(), strict=True):
        theirs[there[:3]] = ours[here[:3]]
    token = int(expected[0].argmax())
    assert torch.equal(other.forward([token], len(prompt), there).view(torch.int32), expected[1].view(torch.int32))


CASES = [(10, 256), (37, 16), (150, 64)]


def _tp3_rank(rank: int, folder: str, prompts: list[list[int]]) -> None:
    torch.set_num_threads(1)
    group = Processes(rank, 3, Path(folder, "rendezvous"))
    model, _ = build(weights.load(weights_file.prepare()), range(rank, rank + 1), group)
    results = [
        generate(model, prompt, shuffled_pages(10 * rank + i), chunk)
        for i, (prompt, (_, chunk)) in enumerate(zip(prompts, CASES, strict=True))
    ]
    torch.save(results, Path(folder, f"{rank}.pt"))


def test_tp_3_gives_the_bits_of_tp_1(model_weights: Weights, smollm_tokenizer: Tokenizer, tmp_path: Path) -> None:
    prompts = [prompt_of(smollm_tokenizer, tokens) for tokens, _ in CASES]
    spawn = multiprocessing.get_context("spawn")
    ranks = [spawn.Process(target=_tp3_rank, args=(rank, str(tmp_path), prompts), daemon=True) for rank in range(3)]
    for process in ranks:
        process.start()
    expected = [
        generate(build(model_weights)[0], prompt, list(range(24)), chunk)
        for prompt, (_, chunk) in zip(prompts, CASES, strict=True)
    ]
    for process in ranks:
        process.join(60)
        assert process.exitcode == 0
    for rank in range(3):
        for ours, theirs in zip(expected, torch.load(tmp_path / f"{rank}.pt"), strict=True):
            assert torch.equal(ours.view(torch.int32), theirs.view(torch.int32)), f"rank {rank}"
