import pytest

from examples.pd_llm import sampling
from examples.pd_llm.request_errors import BadRequest


@pytest.mark.parametrize("parameters", [None, {}, {"temperature": 0}, {"temperature": 0.0}])
def test_an_answer_has_128_tokens_unless_said_otherwise(parameters: dict[str, object] | None) -> None:
    assert sampling.parse(parameters).max_new_tokens == 128


def test_the_number_of_tokens_can_be_said() -> None:
    assert sampling.parse({"max_new_tokens": 3, "temperature": 0}).max_new_tokens == 3


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"top_p": 0.9}, r"sampling_params\.top_p: not supported \(value 0\.9\)"),
        ({"temperature": 0.7}, r"sampling_params\.temperature: only 0 .* not 0\.7"),
        ({"temperature": False}, r"sampling_params\.temperature: .* not false"),
        ({"max_new_tokens": 0}, r"sampling_params\.max_new_tokens: .* not 0"),
        ({"max_new_tokens": "9"}, r"sampling_params\.max_new_tokens: .* not \"9\""),
        ([1], r"sampling_params: an object is wanted, not \[1\]"),
    ],
)
def test_what_is_not_supported_is_named_with_its_value(parameters: object, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        sampling.parse(parameters)  # type: ignore[arg-type]
