from examples.pd_llm.stack import placement


def test_with_two_gpus_prefill_has_the_first_and_decode_the_second() -> None:
    assert placement("cuda") == {"prefill": "cuda:0", "decode": "cuda:1"}


def test_without_gpus_both_are_on_the_cpu() -> None:
    assert placement("cpu") == {"prefill": "cpu", "decode": "cpu"}
