"""Schema of the training loop and its checkpoints."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config.fields import STRICT, Fraction, NonNegativeFloat, PositiveFloat, PositiveInt
from sweeps_train.config.reach import Flag, Import, Reach


@dataclass(config=STRICT, kw_only=True)
class CustomOptimizer:
    """An optimizer by its import path: called with ``params`` (groups of parameters, with their ``weight_decay``),
    ``lr``, and these arguments. With a sharded model, the tensors of its state must have the shapes of the
    parameters."""

    target: Import = Field(alias="_target_")
    """Import path of a class of ``torch.optim.Optimizer``, such as ``torch.optim.RMSprop``."""
    arguments: Annotated[dict[str, Any], Reach.ARGUMENTS] = Field(default_factory=dict)
    """Keyword arguments of ``_target_``; each can be searched as ``train.optimizer.arguments.NAME``."""


BITSANDBYTES_OPTIMIZERS = ("adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit")


@dataclass(config=STRICT, kw_only=True)
class Train:
    """The training loop: duration, batch size, optimizer and learning rate."""

    max_steps: PositiveInt | None = None
    """Optimizer steps; give this or ``epochs``."""
    epochs: PositiveFloat | None = None
    """Passes over the training data; give this or ``max_steps``."""
    global_batch_size: PositiveInt = 32
    """Samples per optimizer step over all workers, however many there are."""
    micro_batch_size: PositiveInt | Literal["auto"] | None = None
    """Samples per forward pass of one worker; auto: the largest that fits into its memory, found once for a kind of
    model and device; default: a worker's whole share without accumulation, and with ``strategy=pipeline`` four micro
    batches for each stage, if the share has that many samples. It is halved when a GPU runs out of memory, which
    changes nothing but speed."""
    max_communication_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Enlarge the global batch by the smallest whole factor for which workers spend at most this part of a step on
    exchanging gradients; needs ``max_global_batch_size``. The times of computing and exchanging are measured when a
    training begins, and the factor is kept for all of it. ``lr`` does not change, nor does ``max_steps``; ``epochs``
    have fewer steps. Since another batch size changes the mathematics, this is off by default."""
    max_global_batch_size: PositiveInt | None = None
    """Upper limit of the global batch with ``max_communication_share``."""
    memory_limit_gib: PositiveFloat | None = None
    """Memory of a worker's device that ``micro_batch_size=auto`` may use; default: its share of a GPU, or of its
    machine."""
    optimizer: (
        Literal["adamw", "adam", "sgd", "adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit"] | CustomOptimizer
    ) = "adamw"
    """Optimizer of torch, or of bitsandbytes: with averages of 8 bits instead of 32 (``_8bit``), or in memory that is
    paged between GPU and CPU (``paged_``); or any other, by its ``_target_``."""
    lr: PositiveFloat = 1e-3
    """Peak learning rate."""
    weight_decay: NonNegativeFloat = 0.0
    """Weight decay (decoupled for adamw)."""
    momentum: Fraction = 0.9
    """Momentum of sgd; first beta of adam and adamw. Not for an optimizer by its ``_target_``."""
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """Learning rate after warm-up: constant, or down to zero along a line or a half cosine."""
    warmup_fraction: Fraction = 0.0
    """Part of all steps over which the learning rate rises from zero."""
    max_grad_norm: PositiveFloat | None = 1.0
    """Clip the gradient's norm to this; null does not clip."""
    on_divergence: Literal["stop", "skip", "restore", "continue"] = "stop"
    """Reaction to a training loss that is not finite: ``stop`` ends the trial with a last evaluation; ``restore``
    goes back to the last checkpoint and continues with the next samples, three times at most; ``continue`` ignores
    it. ``skip`` leaves out steps whose gradients are not finite, ten in succession at most, and waits for the
    gradients of each step. With fp16 such steps are always left out, and the ten count from a loss scale of 1."""
    corruption_check_every: PositiveInt | None = None
    """Steps between two checks for silent data corruption: all workers compute the loss and the gradients of the
    same samples again, and a difference of one bit fails the attempt with the names of the workers. It takes as
    long as a micro batch. Needs ``strategy=ddp``, ``deterministic=true``, several workers, and the same kind of
    processor in all of them. Null: never."""
    eval_every: PositiveInt = 10
    """Steps between evaluations on the held-out data; the last step is always evaluated.
    Every evaluation is a report, at which a scheduler may stop the trial."""
    log_every: PositiveInt = 5
    """Steps between records of the training loss, learning rate and speed."""
    communication_every: PositiveInt | Literal["auto"] | None = "auto"
    """Steps between two measurements of the time that workers communicate, or wait for each other
    (``train/communication_share``, from 0 to 1); a measured step takes some tenths of a second more. Auto: first at
    step 200, and then often enough to take 0.3% of the time. Null: never."""
    peak_tflops: PositiveFloat | None = None
    """Peak performance of one worker's device in 10^12 operations per second; ``train/flop_utilization`` is the part of
    it that the training uses. Default: the data sheet's for known GPUs; on others the metric is not reported."""
    cuda_graphs: Flag = True
    """Record the forward and backward passes of a language model as CUDA graphs and replay them, where one worker
    trains on one GPU: steps of small batches take less time, and the numbers are the same. A model that cannot be
    recorded trains without graphs, and a note says so."""
    compile: Flag = False
    """Compile the model with ``torch.compile`` (needs a C++ compiler on the workers): the first steps and the first
    evaluation take about a minute longer, the others less time, above all on GPUs. The same mathematics up to rounding.
    Only with ``strategy=ddp``."""
    precision: Literal["auto", "fp32", "bf16", "fp16", "fp8"] = "auto"
    """Autocast type; auto: bf16 where the GPU has it, fp16 on older GPUs, fp32 on CPUs. ``fp8``: bf16, and linear
    layers multiply 8-bit numbers, by torchao, on GPUs that support it (compute capability 8.9 or later: L4, RTX 40,
    H100; AMD MI300); for training all weights of a large model with ``compile=true``, and ``strategy=ddp`` or
    ``fsdp``."""
    tf32: Flag | None = None
    """Multiply float32 numbers as TF32 on GPUs that have it: several times faster, with 11 instead of 24 significant
    bits. Null: torch's defaults, which are false for matrices and true for convolutions."""
    deterministic: Flag = False
    """Use only deterministic algorithms, so that the same training gives bit for bit the same numbers on the same kind
    and number of devices. Slower; an operation without such an algorithm raises an error."""
    expandable_segments: Flag = False
    """Let torch's allocator of GPU memory enlarge its blocks, which leaves less memory unusable if the sizes of tensors
    vary."""

    def __post_init__(self) -> None:
        if self.max_steps is None and self.epochs is None:
            raise ValueError("give max_steps, as in max_steps: 200, or epochs")
        if self.max_steps is not None and self.epochs is not None:
            raise ValueError(
                f"give exactly one of max_steps and epochs (max_steps={self.max_steps}, epochs={self.epochs}); "
                "set the other to null"
            )
        if self.on_divergence == "skip" and self.max_grad_norm is None:
            raise ValueError(
                "on_divergence=skip needs the norm of the gradients; set max_grad_norm (1.0e9 never clips)"
            )
        if self.corruption_check_every is not None and not self.deterministic:
            raise ValueError(
                f"corruption_check_every={self.corruption_check_every} compares numbers bit for bit; set "
                "deterministic=true, or corruption_check_every=null"
            )
        if (self.max_communication_share is None) != (self.max_global_batch_size is None):
            raise ValueError(
                f"max_communication_share={self.max_communication_share} and max_global_batch_size="
                f"{self.max_global_batch_size} belong together; set both or neither"
            )
        if self.max_global_batch_size is not None and self.max_global_batch_size < self.global_batch_size:
            raise ValueError(
                f"max_global_batch_size={self.max_global_batch_size} is less than global_batch_size="
                f"{self.global_batch_size}; raise it, or lower global_batch_size"
            )


Kept = Literal["best", "last"]


@dataclass(config=STRICT, kw_only=True)
class SaveEvery:
    """Interval between two checkpoints, in exactly one of three units."""

    steps: PositiveInt | None = None
    """Optimizer steps."""
    epochs: PositiveFloat | None = None
    """Passes over the training data."""
    minutes: PositiveFloat | None = None
    """Minutes of training, converted to steps by their measured duration."""

    def __post_init__(self) -> None:
        given = [name for name, value in vars(self).items() if value is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of steps, epochs and minutes, not {' and '.join(given) or 'none'}")

    def __str__(self) -> str:
        return next(f"{{{name}: {value:g}}}" for name, value in vars(self).items() if value is not None)


@dataclass(config=STRICT, kw_only=True)
class Checkpoint:
    """Frequency and retention of checkpoints."""

    every: PositiveInt | Literal["auto"] | SaveEvery | None = None
    """Steps between checkpoints, or ``{epochs: 0.5}`` or ``{minutes: 10}``; auto: the interval for which the least
    time is lost, from the measured cost of a save and ``failure_hours``; default: at every evaluation. With
    ``minutes`` and auto, evaluations save a checkpoint too, unless ``keep`` lacks ``best``. The last step is always
    saved."""
    failure_hours: PositiveFloat = 24.0
    """Expected hours between two failures of a trial, for ``every=auto``; actual failures are counted as well."""
    keep: list[Kept] = Field(default_factory=lambda: list[Kept](("best", "last")))
    """Checkpoints of a trial that are kept: the best by the search's metric, the newest, or both."""
    trials: PositiveInt | None = None
    """Number of trials, the best ones, whose checkpoints and program files are kept after the end of the sweep, and
    those of trials that a spent budget has stopped; null: all."""
    background: Flag | Literal["auto"] = "auto"
    """Copy the state into shared memory and write it to the storage while the training continues; false: all workers
    wait until it is written. It needs memory and ``/dev/shm`` of a checkpoint's size on the first worker's machine;
    without them, checkpoints are written while workers wait. auto: true, but while at most 1 MiB of weights are
    trained, only after writing checkpoints has taken 0.3 seconds in total."""

    @property
    def follows_times(self) -> bool:
        """Whether measured durations decide when checkpoints are saved."""
        return self.every == "auto" or (isinstance(self.every, SaveEvery) and self.every.minutes is not None)

    def includes_evaluations(self, eval_every: int) -> bool:
        """Whether a checkpoint is saved at every evaluation; ``eval_every`` is the number of steps between two."""
        if self.every is None or self.follows_times:
            return self.every is None or "best" in self.keep
        steps = self.every.steps if isinstance(self.every, SaveEvery) else self.every
        return isinstance(steps, int) and eval_every % steps == 0
