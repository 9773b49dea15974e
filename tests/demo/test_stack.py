import pytest
import torch

from examples.pd_llm.stack import placement
from tests.demo.programs import start


@pytest.mark.parametrize(("gpus", "decode"), [(1, "cuda:0"), (2, "cuda:1"), (8, "cuda:1")])
def test_prefill_has_the_first_gpu_and_decode_the_second_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, gpus: int, decode: str
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    assert placement("cuda") == {"prefill": "cuda:0", "decode": decode}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told_in_a_sentence() -> None:
    process = start("serve", "--model", "random", "--device", "cuda", "--service-port", "0")
    assert process.communicate(timeout=60) == ("", "serve: --device cuda: torch sees no GPU\n")
    assert process.returncode == 1


def test_without_gpus_both_are_on_the_cpu() -> None:
    assert placement("cpu") == {"prefill": "cpu", "decode": "cpu"}
