"""Schema of data: the source of a training's samples."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config.fields import STRICT, PositiveInt
from sweeps_train.config.loader import Loader
from sweeps_train.config.reach import Flag, Import, Reach, Text
from sweeps_train.config.table import TableData


@dataclass(config=STRICT, kw_only=True)
class TextData:
    """Text for language models: plain, prompt and completion, or chat messages."""

    kind: Literal["text"]
    path: Annotated[str, Reach.SOURCE]
    """A JSONL, Parquet or text file, a folder or glob of them, a Hugging Face hub data set,
    or ``builtin:stdlib_docstrings`` (the English docstrings of Python's standard library)."""
    subset: Text | None = None
    """Configuration name of a hub data set."""
    revision: Text | None = None
    """Branch, tag or commit of a hub data set; without it, each trial uses the version that the hub has when this data
    is first loaded."""
    train_split: Text = "train"
    """Split of a hub data set, in its slicing syntax (``train[:90%]``); of a folder only with ``eval_split``."""
    eval_path: Annotated[str | None, Reach.SOURCE] = None
    """Held-out data in its own file; without it, ``eval_split`` or ``eval_fraction`` is used."""
    eval_split: Text | None = None
    """Held-out split of a hub data set, or of a folder whose files are named after their splits."""
    eval_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Part of the documents that is held out when neither ``eval_path`` nor ``eval_split`` is given."""
    text_field: Text | None = "text"
    """Column with plain text."""
    prompt_field: Text | None = None
    """Column with the prompt, which the loss does not count; needs ``completion_field``."""
    completion_field: Text | None = None
    """Column with the completion."""
    messages_field: Text | None = None
    """Column with chat messages (a list of role and content), rendered by the tokenizer's chat template."""
    sequence_length: PositiveInt = 512
    """Tokens per sequence; longer documents are cut into several when packed, else truncated."""
    packing: Flag = True
    """Fill sequences with several documents, with an end-of-text token between them; only for plain text."""
    group_by_length: Flag = True
    """Put sequences of similar length into the same micro batch, so that there is less padding; for data that is not
    packed. Samples are reordered only within a global batch, which changes no gradient."""
    isolate_documents: Flag = False
    """Hide the documents of a packed sequence from each other: a token attends only to its own document, whose
    positions begin at 0, and no document's first token is predicted from another's end. Not with
    ``model.attention=flash_attention_2``."""
    lines_are_documents: Flag = False
    """Treat each line of a text file as a document; otherwise the file is one document."""
    loader: Loader = Field(default_factory=Loader)
    """Options of the data loader."""
    streaming: Flag = False
    """Tokenize text larger than memory in pieces, by all machines of the cluster, into memory-mapped files. Held-out
    documents are chosen by their contents, so that equal ones are in the same split."""
    max_train_documents: PositiveInt | None = None
    """Largest number of training documents; the first ones are used."""
    max_eval_documents: PositiveInt | None = None
    """Largest number of held-out documents; the first ones are used."""

    def __post_init__(self) -> None:
        if (self.prompt_field is None) != (self.completion_field is None):
            raise ValueError("prompt_field and completion_field belong together; set both or neither")
        if self.text_field is None and self.prompt_field is None and self.messages_field is None:
            raise ValueError("name the data's column: text_field, prompt_field and completion_field, or messages_field")
        if self.packing and (self.prompt_field is not None or self.messages_field is not None):
            raise ValueError("packing=true is for plain text only; set packing=false with prompts or chat messages")
        if self.isolate_documents and not self.packing:
            raise ValueError("isolate_documents=true is for packing=true; remove it: each sequence is one document")
        if self.streaming and self.path.startswith("builtin:"):
            raise ValueError(f"streaming=true reads files and hub data sets; set streaming=false for path={self.path}")

    @property
    def columns(self) -> dict[str, str]:
        """Columns that are read of a document, by the option that names each."""
        options: tuple[str, ...] = ("text_field",)
        if self.messages_field is not None:
            options = ("messages_field",)
        elif self.prompt_field is not None:
            options = ("prompt_field", "completion_field")
        return {option: getattr(self, option) for option in options}


@dataclass(config=STRICT, kw_only=True)
class DigitsData:
    """scikit-learn's digits: 1,797 scans of 8x8 pixels in 10 classes, which ship with the library."""

    kind: Literal["digits"]
    eval_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Part of the images that is held out, the same in every class."""
    train_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Part of the training images that is used, about the same of each class, for cheaper stages of a search. A smaller
    part is contained in each larger one, and the held-out images stay the same."""
    loader: Loader = Field(default_factory=Loader)
    """Options of the data loader."""


@dataclass(config=STRICT, kw_only=True)
class CustomData:
    """A user's own data: ``_target_(**arguments)`` returns a training and a held-out torch ``Dataset``
    of (input, label) pairs."""

    kind: Literal["custom"]
    target: Import = Field(alias="_target_")
    """Import path of the function."""
    arguments: Annotated[dict[str, Any], Reach.ARGUMENTS] = Field(default_factory=dict)
    """Keyword arguments of ``_target_``; each can be searched as ``data.arguments.NAME``."""
    loader: Loader = Field(default_factory=Loader)
    """Options of the data loader."""


Data = Annotated[TextData | DigitsData | CustomData | TableData, Field(discriminator="kind")]
