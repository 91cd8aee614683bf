"""A tokenizer that does not fit the embeddings of the model."""

from __future__ import annotations

import pytest

from sweeps_train.config import CausalLM
from sweeps_train.tasks.causal_lm import _check_vocabulary


class Model:
    class Embeddings:
        num_embeddings = 100

    def get_input_embeddings(self) -> Model.Embeddings:
        return self.Embeddings()


@pytest.mark.parametrize(
    ("tokenizer", "words"),
    [
        ("other", r"model.tokenizer=other has 101 tokens.*use the model's own tokenizer \(model.tokenizer=null\)"),
        (None, r"model.path=mine: its own tokenizer has 101 tokens.*`model.resize_token_embeddings"),
    ],
)
def test_the_advice_is_not_what_is_set_already(tokenizer: str | None, words: str) -> None:
    config = CausalLM(kind="causal_lm", path="mine", tokenizer=tokenizer)
    with pytest.raises(ValueError, match=words) as raised:
        _check_vocabulary(config, 101, Model())
    assert ("model.tokenizer=null" in str(raised.value)) is (tokenizer is not None)
    _check_vocabulary(config, 100, Model())
