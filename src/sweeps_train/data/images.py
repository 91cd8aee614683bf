"""Labelled images: scikit-learn's digits, or a user's own data set."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from sweeps_train.config import CustomData, DigitsData
from sweeps_train.data.digits import load_digits, split_by_class
from sweeps_train.data.sample_order import Batch
from sweeps_train.tables.train_part import train_part
from sweeps_train.targets import call_target

_log = logging.getLogger(__name__)

IGNORED_LABEL = -100
"""Label that ``cross_entropy`` ignores."""


class ImageSamples:
    """Pairs of an input and a label; each pair is one unit of the loss, unless its label is ignored."""

    def __init__(self, pairs: Dataset[Any], class_names: Sequence[str] = ()):
        """Read a data set, whose class names are in the order of the labels; default: its ``classes``, as in
        torchvision."""
        self.pairs = pairs
        self.class_names = class_names or tuple(map(str, _classes(pairs) or ()))
        self.knows_labels = False
        """Whether ``units`` leaves out ignored labels; if not, they are known only from batches."""
        self._counted: torch.Tensor | None = None
        """Whether the loss counts each sample, by index; None as long as all are assumed to count."""
        self._tensors: tuple[torch.Tensor, torch.Tensor] | None = None
        if type(pairs) is TensorDataset:
            inputs, labels = pairs.tensors
            self._tensors = inputs, _as_classes(labels)  # torch selects none of type uint16
            counted, self.knows_labels = self._tensors[1] != IGNORED_LABEL, True
            self._counted = None if counted.all() else counted

    def __len__(self) -> int:
        return len(self.pairs)  # type: ignore[arg-type] # torch's Dataset leaves __len__ out on purpose

    def column(self, index: int) -> str:
        """Return a feature's index as text, with its name if the data set has ``columns`` or ``feature_names``."""
        for attribute in ("columns", "feature_names"):
            names = getattr(self.pairs, attribute, None)
            if names is not None and index < len(names):
                return f"{index} ({names[index]})"
        return str(index)

    @cached_property
    def num_classes(self) -> int:
        """Number of classes: of the data set's ``classes`` if it has them, as in torchvision, otherwise of its labels,
        for which all of its samples are read."""
        classes = _classes(self.pairs)
        if classes is not None:
            return len(classes)
        if self._tensors is not None:
            return 1 + int(self._tensors[1].max())
        _log.info(
            "reading all %d training samples for their labels; give the data set a list of its classes, as in "
            "self.classes = ['cat', 'dog'], if this takes long", len(self),
        )  # fmt: skip
        return 1 + max(int(self.pairs[index][1]) for index in range(len(self)))

    def batch(self, indices: Sequence[int]) -> Batch:
        """Stack samples: ``inputs`` of shape (batch, ...) and ``labels`` of shape (batch,)."""
        if self._tensors is not None:  # one by one takes as long as a small model's forward pass
            index = torch.tensor(indices)
            inputs, labels = (tensor.index_select(0, index) for tensor in self._tensors)
        else:
            try:
                inputs, labels = default_collate([self.pairs[index] for index in indices])
            except (TypeError, RuntimeError) as error:
                reason = str(error).strip().partition("\n")[0]
                raise ValueError(
                    f"data: samples cannot be stacked into a batch ({reason}); return tensors of one shape, and labels "
                    "that are numbers"
                ) from error
            labels = _as_classes(labels)
        return {"inputs": inputs, "labels": labels}

    def units(self, indices: Sequence[int]) -> int:
        return len(indices) if self._counted is None else int(self._counted[torch.tensor(indices)].sum())

    def size(self, indices: Sequence[int]) -> int:
        return len(indices)


def _as_classes(labels: Any) -> Any:
    """Convert labels of any type of whole numbers to int64, as torch's cross-entropy takes them."""
    is_whole = isinstance(labels, torch.Tensor) and not labels.is_floating_point()
    return labels.long() if is_whole else labels


def _classes(pairs: Any) -> Sequence[Any] | None:
    """Return the names of a data set's classes, if it has any; for a subset, those of the whole set."""
    while isinstance(pairs, Subset):  # as of random_split
        pairs = pairs.dataset
    classes = getattr(pairs, "classes", None)
    return [*classes] if isinstance(classes, Iterable) else None  # it may be an array, or a number


COLOURS = (1, 3, 4)
"""Usual numbers of channels."""
MOST_STRETCHED = 4
"""Maximum ratio of the second to the first dimension of an input for which the first may be the height of an image."""


@dataclass(frozen=True)
class ImageShape:
    """Size of the images and number of classes, for which a classifier is built."""

    channels: int
    height: int
    width: int
    classes: int


def image_shape(samples: ImageSamples) -> ImageShape:
    """Return the shape of the first image, and the number of classes.

    Raises:
        ValueError: The inputs do not have the shape (channels, height, width).
    """
    shape = tuple(samples.batch([0])["inputs"].shape[1:])
    if len(shape) != 3:
        raise ValueError(
            f"data: an input has shape {shape}, and this model takes (channels, height, width); "
            "give such images, or a model.kind=custom that takes these"
        )
    looks_high = MOST_STRETCHED * shape[0] >= shape[1]  # unlike (6, 128, 1), a series of six sensors
    if looks_high and shape[0] not in COLOURS and shape[-1] in COLOURS:
        raise ValueError(
            f"data: an input has shape {shape}, whose channels seem to be last; this model takes (channels, height, "
            "width): use torchvision's ToTensor, or inputs.permute(2, 0, 1)"
        )
    return ImageShape(*shape, samples.num_classes)


def build_image_samples(config: DigitsData | CustomData) -> tuple[ImageSamples, ImageSamples]:
    """Build training and held-out samples.

    Raises:
        ValueError: A user's function does not return two data sets, or returns an empty one.

    Example:
        >>> train, held_out = build_image_samples(DigitsData(kind="digits"))
        >>> len(train), train.batch([0, 1])["inputs"].shape
        (1437, torch.Size([2, 1, 8, 8]))
    """
    if isinstance(config, DigitsData):
        return _digits(config)
    pair = call_target("data", config.target, config.arguments)
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        of = f" of {', '.join(map(str, pair))}" if isinstance(pair, Mapping) else ""
        raise ValueError(
            f"data._target_={config.target} returned {type(pair).__name__}{of}; "
            "it must return two data sets: training and held-out, as in return sets['train'], sets['test']"
        )
    for name, data_set in zip(("training", "held-out"), pair, strict=True):
        if not hasattr(data_set, "__len__") or not hasattr(data_set, "__getitem__"):
            raise ValueError(
                f"data._target_={config.target}: the {name} data is a {type(data_set).__name__}; "
                "it must be a data set with a length, whose items are read by index"
            )
        if len(data_set) == 0:
            raise ValueError(f"data._target_={config.target}: the {name} data is empty; it needs at least one sample")
        _check_item(f"data._target_={config.target}: an item of the {name} data", data_set[0])
    _check_same_classes(f"data._target_={config.target}", *pair)
    return ImageSamples(pair[0]), ImageSamples(pair[1])


def _check_same_classes(what: str, train: Any, held_out: Any) -> None:
    """Raise ``ValueError`` if a label means one class in the training data and another one in the held-out data, as it
    does when one of the two has no folder for a class."""
    pairs = zip(_classes(train) or (), _classes(held_out) or (), strict=False)
    for label, (trained, other) in enumerate(pairs):
        if str(trained) != str(other):
            raise ValueError(
                f"{what}: the label {label} is {str(trained)!r} in the training data and {str(other)!r} in the "
                "held-out data; give both the same classes in the same order, such as folders of the same names"
            )


def _check_item(what: str, item: Any) -> None:
    """Raise ``ValueError`` if an item is not a pair of an input and a label that can be stacked."""
    if isinstance(item, Mapping):
        raise ValueError(  # noqa: TRY004 - a mistake in the data
            f"{what} is a mapping of {', '.join(map(str, item))}; return pairs (input, label), as of a data set whose "
            "__getitem__ returns (to_tensor(row['image']), row['label'])"
        )
    if not isinstance(item, tuple | list) or len(item) != 2:
        of = f" of {len(item)}" if isinstance(item, tuple | list) else ""
        raise ValueError(f"{what} is a {type(item).__name__}{of}; return pairs (input, label)")
    try:
        is_tensor = isinstance(default_collate([item[0]]), torch.Tensor)  # unlike a mapping of several
    except TypeError:  # such as an image of PIL
        is_tensor = False
    if not is_tensor:
        raise ValueError(
            f"{what} has a {type(item[0]).__name__} as its input; return a tensor, as torchvision's ToTensor makes it"
        )
    if isinstance(item[1], str | Mapping) or item[1] is None:
        raise ValueError(f"{what} has the label {item[1]!r}; return the number of its class, from 0")
    if shape := tuple(getattr(item[1], "shape", ())):
        raise ValueError(f"{what} has a label of shape {shape}; return one number, the class, as by int(label)")


def _digits(config: DigitsData) -> tuple[ImageSamples, ImageSamples]:
    """Return 1,797 images of shape (1, 8, 8) with values from -1 to 1, split in the same ratio in every class and
    equally for every seed."""
    pixels, labels = load_digits()
    images = torch.from_numpy(pixels).float().view(-1, 1, 8, 8) / 8 - 1
    train, held_out = split_by_class(labels, config.eval_fraction)
    if config.train_fraction < 1:
        used = train_part(len(train), config.train_fraction, 0, labels[train].tolist())
        train = [train[index] for index in used]
    classes = torch.from_numpy(labels)
    names = tuple(map(str, range(10)))
    return ImageSamples(TensorDataset(images[train], classes[train]), names), ImageSamples(
        TensorDataset(images[held_out], classes[held_out]), names
    )
