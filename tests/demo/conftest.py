import pytest
import torch
from tokenizers import Tokenizer

from examples.pd_llm import tokenizer, weights, weights_file
from examples.pd_llm.weights import Weights


@pytest.fixture(scope="session")
def model_weights() -> Weights:
    """SmolLM2's, from the file that the demo uses too."""
    torch.set_num_threads(1)
    return weights.load(weights_file.prepare())


@pytest.fixture(scope="session")
def smollm_tokenizer() -> Tokenizer:
    return tokenizer.load()
