import pytest

from examples.pd_llm.stack import placement


@pytest.mark.parametrize(("gpus", "decode"), [(1, "cuda:0"), (2, "cuda:1"), (8, "cuda:1")])
def test_prefill_has_the_first_gpu_and_decode_the_second_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, gpus: int, decode: str
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    assert placement("cuda") == {"prefill": "cuda:0", "decode": decode}


def test_without_gpus_both_are_on_the_cpu() -> None:
    assert placement("cpu") == {"prefill": "cpu", "decode": "cpu"}
