"""Contract with the private name of ``datasets`` that ``sweeps_train`` uses: a failure says that it has moved."""

from __future__ import annotations

from datasets import Dataset

from sweeps_train.compat.datasets import fingerprint


def test_a_data_set_has_a_fingerprint_of_its_contents() -> None:
    first = Dataset.from_dict({"text": ["one", "two"]})
    same, other = (Dataset.from_dict({"text": ["one", each]}) for each in ("two", "three"))
    assert isinstance(fingerprint(first), str), "Dataset._fingerprint"
    assert fingerprint(first) == fingerprint(same) != fingerprint(other), "Dataset._fingerprint"
