"""Data sets of users that are no pairs of an input and a label say so, before torch does."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset, random_split
from training_runs import IMAGES, configured

from sweeps_train.config import CustomData
from sweeps_train.data.images import ImageSamples, ImageShape, build_image_samples, image_shape
from sweeps_train.tasks.image_classification import ImageClassification
from sweeps_train.workers.worker_cache import evict


class Picture:
    """As PIL's images are: no tensor."""


PAIR = (torch.zeros(1, 8, 8), 0)


def built(monkeypatch: pytest.MonkeyPatch, *made: Any) -> ImageSamples:
    returned_by_make(monkeypatch, made)
    return build_image_samples(CustomData(kind="custom", _target_="pictures.make"))[0]  # type: ignore[call-arg]


def returned_by_make(monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    module = ModuleType("pictures")
    module.make = lambda: made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pictures", module)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"image": Picture(), "label": 1}, r"is a mapping of image, label; return pairs \(input, label\)"),
        (torch.zeros(3), r"is a Tensor; return pairs \(input, label\)"),
        ((Picture(), 1), r"has a Picture as its input; return a tensor, as torchvision's ToTensor makes it"),
        (({"ids": torch.zeros(3), "mask": torch.ones(3)}, 1), r"has a dict as its input; return a tensor"),
        ((torch.zeros(3), "cat"), r"has the label 'cat'; return the number of its class, from 0"),
        ((torch.zeros(3), None), r"has the label None; return the number"),
        ((torch.zeros(3), torch.tensor([1])), r"has a label of shape \(1,\); return one number"),
        ((*PAIR, {}), r"is a tuple of 3; return pairs"),
    ],
)
@pytest.mark.parametrize("which", ["training", "held-out"])
def test_an_item_that_is_no_pair_names_the_function_and_the_fix(
    item: Any, message: str, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, held_out = ([item], [PAIR]) if which == "training" else ([PAIR], [item])
    with pytest.raises(ValueError, match=rf"data\._target_=pictures\.make: an item of the {which} data {message}"):
        built(monkeypatch, train, held_out)


def test_data_sets_by_name_say_how_to_return_two(monkeypatch: pytest.MonkeyPatch) -> None:
    returned_by_make(monkeypatch, {"train": [PAIR], "test": [PAIR]})
    with pytest.raises(ValueError, match=r"returned dict of train, test; it must return two data sets"):
        build_image_samples(CustomData(kind="custom", _target_="pictures.make"))  # type: ignore[call-arg]


@pytest.mark.parametrize("shape", [(8, 9, 3), (28, 28, 1), (480, 640, 3), (32, 100, 1)])
def test_images_with_their_channels_last_say_so(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=rf"shape {re.escape(str(shape))}, whose channels seem to be last"):
        image_shape(built(monkeypatch, [(torch.zeros(shape), 1)], [PAIR]))


@pytest.mark.parametrize("shape", [(6, 128, 1), (9, 128, 1), (3, 28, 4), (1, 28, 1)])
def test_series_of_several_sensors_are_no_images_with_their_channels_last(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert image_shape(built(monkeypatch, [(torch.zeros(shape), 1)], [PAIR])) == ImageShape(*shape, 2)


def test_images_of_different_sizes_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = built(monkeypatch, [PAIR, (torch.zeros(1, 9, 8), 1)], [PAIR])
    with pytest.raises(ValueError, match=r"data: samples cannot be stacked into a batch .*return tensors of one shape"):
        samples.batch([0, 1])


class Named(Dataset[Any]):
    """Images in folders by class, which take long to read."""

    classes = ("cat", "dog", "hare")

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        pytest.fail("an image is read")


class Folders(list[Any]):
    """Images in folders by class, as torchvision reads them."""

    def __init__(self, *classes: str):
        super().__init__([PAIR])
        self.classes = np.array(classes)


def test_a_label_that_means_another_class_in_the_held_out_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ValueError, match=r"pictures\.make: the label 1 is 'dog' in the training data and 'hare' in the"
    ):
        built(monkeypatch, Folders("cat", "dog", "hare"), Folders("cat", "hare"))
    samples = built(monkeypatch, Folders("cat", "dog", "hare"), Folders("cat", "dog"))
    assert (samples.num_classes, samples.class_names) == (3, ("cat", "dog", "hare"))


def test_a_number_of_classes_is_no_list_of_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Folders("cat")
    data.classes = 3  # type: ignore[assignment] # as a data set of the user's own may have it
    samples = built(monkeypatch, data, [PAIR])
    assert (samples.num_classes, samples.class_names) == (1, ())


def test_a_random_split_has_the_classes_of_the_whole_data_set() -> None:
    samples = ImageSamples(random_split(Named(), [3, 1])[0])
    assert (samples.num_classes, samples.class_names) == (3, Named.classes)


class Augmented(Dataset[Any]):
    """Images without names of their classes, which take long to read, and draw random numbers."""

    def __init__(self) -> None:
        self.read = 0

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        self.read += 1
        return torch.rand(1, 8, 8), index % 3


def test_labels_are_read_once_in_a_process_and_not_at_all_to_continue(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = Augmented()
    returned_by_make(monkeypatch, (data, [PAIR]))
    own = {**IMAGES, "data": {"kind": "custom", "_target_": "pictures.make"}}
    first = ImageClassification(configured(own), None)
    assert 40 <= data.read < 50
    second = ImageClassification(configured(own), None)
    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other), "weights depend on what was read before"
    first.save(tmp_path, None)
    evict("images")
    ImageClassification(configured(own), tmp_path).save(tmp_path, None)
    assert data.read < 60
    evict("images")


@pytest.mark.parametrize(
    "labels", [torch.tensor([2, -100, 0]), *(torch.tensor([2, 0], dtype=each) for each in (torch.uint8, torch.uint16))]
)
def test_the_classes_of_a_data_set_of_tensors_are_those_of_its_labels(labels: torch.Tensor) -> None:
    samples = ImageSamples(TensorDataset(torch.zeros(len(labels), 1, 8, 8), labels))
    assert (samples.num_classes, samples.batch([0])["labels"].tolist()) == (3, [2])
