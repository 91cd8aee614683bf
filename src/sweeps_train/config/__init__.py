"""What one training run needs to know: typed and checked, and free of torch.

The driver checks a config with these classes in milliseconds, before any worker starts; a worker receives
the very same object. Unknown keys, wrong types and values out of range are errors (pydantic reports all of
them at once); a combination that cannot work raises ``ValueError`` naming the keys and the fix.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass

from sweeps_train.config.data import CustomData as CustomData
from sweeps_train.config.data import Data as Data
from sweeps_train.config.data import DigitsData as DigitsData
from sweeps_train.config.data import TextData as TextData
from sweeps_train.config.fields import STRICT as STRICT
from sweeps_train.config.fields import Fraction
from sweeps_train.config.fields import NonNegativeFloat as NonNegativeFloat
from sweeps_train.config.fields import PositiveFloat as PositiveFloat
from sweeps_train.config.fields import PositiveInt as PositiveInt
from sweeps_train.config.reach import Flag, Import, Reach, Text
from sweeps_train.config.strategy import Strategy as Strategy

# --- task: what is trained, and which metrics it reports --------------------------------------------------


@dataclass(config=STRICT, kw_only=True)
class CausalLMTask:
    """Next-token prediction; the loss is the mean over the tokens that count (padding and prompts do not)."""

    kind: Literal["causal_lm"]
    metrics: list[Text] = Field(
        default_factory=lambda: ["eval/loss", "eval/perplexity", "train/loss", "train/tokens_per_second"]
    )
    """Metrics that the task reports, each of which a search may optimise."""


@dataclass(config=STRICT, kw_only=True)
class ImageClassificationTask:
    """Cross-entropy over classes."""

    kind: Literal["image_classification"]
    metrics: list[Text] = Field(
        default_factory=lambda: ["eval/loss", "eval/accuracy", "train/loss", "train/samples_per_second"]
    )
    """Metrics that the task reports, each of which a search may optimise."""


Task = Annotated[CausalLMTask | ImageClassificationTask, Field(discriminator="kind")]


@dataclass(config=STRICT, kw_only=True)
class FunctionTask:
    """A user's own Ray Train function, as a ``TorchTrainer`` would take it: every worker calls it, it reports with
    ``ray.train.report``, and goes on from ``ray.train.get_checkpoint``. Or what can be made one."""

    kind: Literal["function"]
    framework: Literal["ray_train", "huggingface", "lightning", "script"] = "ray_train"
    """What ``_target_`` is: ``ray_train``, such a function; ``huggingface``, a function that returns a
    ``transformers.Trainer``, which trains, reports its evaluations and goes on from its checkpoints; ``lightning``, one
    that returns a ``lightning.pytorch`` Trainer, a LightningModule and, if they are apart, its data, of which the same
    is true; ``script``, a file or module that ``torchrun`` would start, with the arguments as ``--name=value``: it
    prints its reports as JSON."""
    target: Import = Field(alias="_target_")
    """Import path of the function."""
    arguments: Annotated[dict[str, Any], Reach.ARGUMENTS] = Field(default_factory=dict)
    """The mapping that it is called with; each value can be searched as ``task.arguments.NAME``."""
    metrics: list[Text] = Field(default_factory=list)
    """Metrics that it reports; with them, a misspelt ``search.metric`` is found before anything starts."""


# --- model ------------------------------------------------------------------------------------------------


@dataclass(config=STRICT, kw_only=True)
class Lora:
    """Low-rank adapters on a frozen base model (Hu et al., 2021, https://arxiv.org/abs/2106.09685), by peft."""

    r: PositiveInt = 8
    """Rank of the adapters."""
    alpha: PositiveFloat = 16.0
    """Scale of the adapters: their output is multiplied by alpha / r."""
    dropout: Fraction = 0.0
    """Dropout on the adapters' input."""
    target_modules: Text | list[Text] = "all-linear"
    """Which layers get adapters: ``attention``, ``mlp``, ``all-linear``, or a list of module names."""


@dataclass(config=STRICT, kw_only=True)
class CausalLM:
    """A causal language model that transformers loads."""

    kind: Literal["causal_lm"]
    path: Annotated[str, Reach.SOURCE]
    """A Hugging Face hub name, a local folder, or ``builtin:tiny_llama`` (ships with Sweeps)."""
    revision: Text | None = None
    """Branch, tag or commit on the hub."""
    tokenizer: Annotated[str | None, Reach.SOURCE] = None
    """Hub name or folder of the tokenizer; default: the model's own."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of the base model's weights; ``auto`` keeps the stored one."""
    attention: Annotated[str | None, Reach.WORD] = None
    """Attention implementation of transformers (``sdpa``, ``flash_attention_2``, ...); default: its choice."""
    gradient_checkpointing: Flag = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    trust_remote_code: Annotated[bool, Reach.REMOTE_CODE] = False
    """Run model code from the hub. Only for sources that you trust."""
    lora: Lora | None = None
    """Adapters to train; null trains every weight."""


@dataclass(config=STRICT, kw_only=True)
class ConvNet:
    """A small convolutional network for images."""

    kind: Literal["conv_net"]
    channels: PositiveInt = 16
    """Channels of the first block; each further block doubles them."""
    blocks: Annotated[int, Field(ge=1, le=4)] = 2
    """Convolution blocks, each of which halves height and width."""
    dropout: Fraction = 0.0
    """Dropout before the classifier."""


@dataclass(config=STRICT, kw_only=True)
class VisionTransformer:
    """A small vision transformer (Dosovitskiy et al., 2020, https://arxiv.org/abs/2010.11929)."""

    kind: Literal["vision_transformer"]
    patch_size: PositiveInt = 2
    """Height and width of a patch, in pixels; must divide the image's."""
    width: PositiveInt = 32
    """Embedding size; must be divisible by ``heads``."""
    depth: PositiveInt = 2
    """Transformer layers."""
    heads: PositiveInt = 4
    """Attention heads."""
    dropout: Fraction = 0.0
    """Dropout in the layers."""

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width={self.width} is not divisible by heads={self.heads}; change one of them")


@dataclass(config=STRICT, kw_only=True)
class CustomModel:
    """A user's own ``torch.nn.Module``: called with the inputs of a batch, returns logits."""

    kind: Literal["custom"]
    target: Import = Field(alias="_target_")
    """Import path of a class or function that returns the module."""
    arguments: Annotated[dict[str, Any], Reach.ARGUMENTS] = Field(default_factory=dict)
    """Keyword arguments for it; each can be searched as ``model.arguments.NAME``."""


Model = Annotated[CausalLM | ConvNet | VisionTransformer | CustomModel, Field(discriminator="kind")]


# --- training ---------------------------------------------------------------------------------------------


@dataclass(config=STRICT, kw_only=True)
class Train:
    """The training loop: how long, how large a batch, and how the weights move."""

    max_steps: PositiveInt | None = None
    """Optimizer steps; give this or ``epochs``."""
    epochs: PositiveFloat | None = None
    """Passes over the training data; give this or ``max_steps``."""
    global_batch_size: PositiveInt = 32
    """Samples per optimizer step over all workers, however many there are."""
    micro_batch_size: PositiveInt | Literal["auto"] | None = None
    """Samples per forward pass of one worker; auto: the largest that fits into its memory, found once for a kind of
    model and device; default: a worker's whole share, without accumulation, and with ``strategy=pipeline`` four micro
    batches for each stage, as far as the share allows. Where a GPU runs out of memory, it is
    halved, which changes nothing but speed."""
    max_communication_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Make the global batch larger, by the smallest whole factor for which workers spend at most this part of a step on
    exchanging gradients; wants ``max_global_batch_size``. What both take is measured when a training begins, and the
    factor kept for all of it. Steps, ``lr`` and the schedule stay, and another batch is other mathematics: by default
    it never changes."""
    max_global_batch_size: PositiveInt | None = None
    """Up to which ``max_communication_share`` may make it larger."""
    memory_limit_gib: PositiveFloat | None = None
    """Memory of its device that a worker may use, as far as ``micro_batch_size=auto`` plans it; default: what a GPU has
    free, or an equal part of a machine's."""
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    """Optimizer of torch."""
    lr: PositiveFloat = 1e-3
    """Peak learning rate."""
    weight_decay: NonNegativeFloat = 0.0
    """Weight decay (decoupled for adamw)."""
    momentum: Fraction = 0.9
    """Momentum of sgd; first beta of adam and adamw."""
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """Learning rate after warm-up: constant, or down to zero along a line or a half cosine."""
    warmup_fraction: Fraction = 0.0
    """Part of all steps over which the learning rate rises from zero."""
    max_grad_norm: PositiveFloat | None = 1.0
    """Clip the gradient's norm to this; null does not clip."""
    eval_every: PositiveInt = 10
    """Steps between evaluations on the held-out data; the last step is always evaluated.
    Every evaluation is a report, at which a scheduler may stop the trial."""
    log_every: PositiveInt = 5
    """Steps between records of the training loss, learning rate and speed."""
    communication_every: PositiveInt | Literal["auto"] | None = "auto"
    """Steps from one to the next in which it is measured how long workers talk to each other or wait for it
    (``train/communication_share``, from 0 to 1); such a step takes some tenths of a second more. Auto: the 200th, and
    then as often as it takes a hundredth of the time. Null: never."""
    peak_tflops: PositiveFloat | None = None
    """What one worker's device can do at most, in 10^12 operations a second: ``train/flop_utilization`` is the part
    of it that the training makes use of. Default: the data sheet's for known GPUs; on others it is not reported."""
    compile: Flag = False
    """Have the model compiled by ``torch.compile`` (needs a C++ compiler on the workers): the first steps and the first
    evaluation take longer, by a minute or so, and the others less time, most of all on GPUs. The same mathematics up to
    rounding. With ``strategy=ddp``."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Autocast type; auto: bf16 where the GPU has it, fp16 on older GPUs, fp32 on CPUs."""

    def __post_init__(self) -> None:
        if (self.max_steps is None) == (self.epochs is None):
            raise ValueError(
                f"give exactly one of max_steps and epochs (max_steps={self.max_steps}, epochs={self.epochs}); "
                "set the other to null"
            )
        if (self.max_communication_share is None) != (self.max_global_batch_size is None):
            raise ValueError(
                f"max_communication_share={self.max_communication_share} and max_global_batch_size="
                f"{self.max_global_batch_size} belong together; set both or neither"
            )
        if self.max_global_batch_size is not None and self.max_global_batch_size < self.global_batch_size:
            raise ValueError(
                f"max_global_batch_size={self.max_global_batch_size} is less than global_batch_size="
                f"{self.global_batch_size}, which it begins with; raise it, or lower global_batch_size"
            )


Kept = Literal["best", "last"]


@dataclass(config=STRICT, kw_only=True)
class Checkpoint:
    """When to save, and what to keep."""

    every: PositiveInt | None = None
    """Steps between checkpoints; default: at every evaluation. The last step is always saved."""
    keep: list[Kept] = Field(default_factory=lambda: list[Kept](("best", "last")))
    """Which checkpoints of a trial stay: the best by the search's metric, the newest, or both."""
    trials: PositiveInt | None = None
    """How many trials keep their checkpoints when the sweep has ended, the best first; null: all."""


@dataclass(config=STRICT, kw_only=True)
class TrainingConfig:
    """One training run, whole."""

    task: Task
    model: Model
    data: Data
    train: Train
    strategy: Strategy
    checkpoint: Checkpoint
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seeds weights, data order, dropout and the search; a 32-bit number, since numpy takes no other."""

    def __post_init__(self) -> None:
        check_fit(self.task, self.model, self.data)
        check_exchange(self.train, self.strategy)
        check_compile(self.train, self.strategy)


@dataclass(config=STRICT, kw_only=True)
class FunctionConfig:
    """One training by a user's own function, whole."""

    task: FunctionTask
    checkpoint: Checkpoint
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seeds torch, Python and numpy before the function is called."""


def check_fit(task: Task, model: Model, data: Data) -> None:
    """
    Raises:
        ValueError: The task does not train such a model, or does not read such data.
    """
    wanted = {
        "causal_lm": ({"causal_lm"}, {"text"}),
        "image_classification": ({"conv_net", "vision_transformer", "custom"}, {"digits", "custom"}),
    }
    models, kinds_of_data = wanted[task.kind]
    if model.kind not in models:
        raise ValueError(f"model.kind={model.kind} does not fit task.kind={task.kind}, which trains {sorted(models)}")
    if data.kind not in kinds_of_data:
        raise ValueError(
            f"data.kind={data.kind} does not fit task.kind={task.kind}, which reads {sorted(kinds_of_data)}"
        )
    isolates = isinstance(data, TextData) and data.isolate_documents
    if isolates and isinstance(model, CausalLM) and (model.attention or "").startswith("flash"):
        raise ValueError(
            f"data.isolate_documents=true: model.attention={model.attention} takes no mask for whole batches; "
            "use model.attention=sdpa or flex_attention"
        )


def check_batch_split(train: Train, replicas: int, stages: int = 1) -> tuple[int, int]:
    """How the global batch spreads: (samples per forward pass of a worker, accumulation steps).

    Args:
        train: Sizes of the global batch and the micro batch.
        replicas: Groups of workers that have samples of their own: ``strategy.replicas(num_workers)``.
        stages: Workers that a pipeline's micro batches pass through; without a ``micro_batch_size`` there are
            ``MICRO_BATCHES_A_STAGE`` micro batches for each, as far as the batch allows.

    Raises:
        ValueError: It does not divide exactly; the message names the sizes that would.
    """
    share, remainder = divmod(train.global_batch_size, replicas)
    whom = f"{replicas} workers that have samples of their own"
    if remainder:
        below = share * replicas
        fits = [size for size in (below, below + replicas) if size > 0]
        raise ValueError(
            f"train.global_batch_size={train.global_batch_size} cannot be split over {whom}; "
            f"use {' or '.join(map(str, fits))}"
        )
    micro = train.micro_batch_size if isinstance(train.micro_batch_size, int) else _whole_or_for(stages, share)
    if share % micro:
        fits = [size for size in range(1, share + 1) if share % size == 0]
        raise ValueError(
            f"train.micro_batch_size={micro} does not divide the {share} samples that each of {whom} "
            f"has of train.global_batch_size={train.global_batch_size}; use one of {fits}"
        )
    return micro, share // micro


MICRO_BATCHES_A_STAGE = 4
"""With four for each stage workers wait for at most a fifth of a step (GPipe, Huang et al., 2018)."""


def largest_micro_batch_for(stages: int, share: int) -> int:
    """The largest micro batch with which each of a pipeline's stages has something to do; 1 if none does."""
    return max(1, *(size for size in range(1, share + 1) if share % size == 0 and share // size >= stages))


def _whole_or_for(stages: int, share: int) -> int:
    return share if stages == 1 else largest_micro_batch_for(min(share, MICRO_BATCHES_A_STAGE * stages), share)


def check_exchange(train: Train, strategy: Strategy) -> None:
    """
    Raises:
        ValueError: A larger global batch would not make the strategy's communication less.
    """
    if train.max_communication_share is None:
        return
    if strategy.kind != "ddp":
        raise ValueError(
            f"train.max_communication_share={train.max_communication_share} is for strategy=ddp, which sends gradients "
            f"alone, once a step; with strategy.kind={strategy.kind} set it and train.max_global_batch_size to null"
        )
    if strategy.compression == "powersgd":
        raise ValueError(
            f"train.max_communication_share={train.max_communication_share}: what strategy.compression=powersgd sends "
            "is no matter of the batch; use none, fp16 or bf16, or set it and train.max_global_batch_size to null"
        )


def check_compile(train: Train, strategy: Strategy) -> None:
    """
    Raises:
        ValueError: The strategy cuts the model in ways that ``torch.compile`` does not take.
    """
    if train.compile and strategy.kind != "ddp":
        raise ValueError(
            f"train.compile=true is for strategy=ddp; with strategy.kind={strategy.kind} set train.compile to false"
        )


TRAINING_CONFIG: TypeAdapter[TrainingConfig] = TypeAdapter(TrainingConfig)
"""Reads a ``TrainingConfig`` from plain dicts and writes it back (``dump_python(..., by_alias=True)``)."""
