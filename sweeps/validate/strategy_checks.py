"""Checks that the strategy fits the workers, the batch and the model."""

from __future__ import annotations

from sweeps.config import SweepConfig
from sweeps.errors import ConfigError
from sweeps.validate.model_checks import model_facts
from sweeps_train.config import (
    CausalLM,
    ConvNet,
    TableData,
    Train,
    VisionTransformer,
    check_batch_split,
    check_training,
)
from sweeps_train.config.strategy import ContextParallel, FSDPTensorParallel, Pipeline, TensorParallel, num_stages


def check_strategy(config: SweepConfig) -> None:
    """Check that the strategy fits one config.

    Raises:
        ConfigError: The workers, the batch or the model cannot be divided as the strategy requires.
    """
    strategy, train, num_workers = config.strategy, config.train, config.scaling.min_workers
    assert strategy is not None and train is not None and config.model is not None
    try:
        replicas = strategy.replicas(num_workers)
        _, num_micro_batches = check_batch_split(train, replicas, num_stages(strategy, num_workers))
        check_training(config.model, train, strategy)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if num_workers == 1:
        if train.corruption_check_every is not None:
            raise ConfigError(
                f"train.corruption_check_every={train.corruption_check_every} compares workers; use "
                "scaling.num_workers=2 or more, or set it to null"
            )
        return
    if train.precision == "fp16" and strategy.kind != "ddp":
        raise ConfigError(
            f"train.precision=fp16 cannot be combined with strategy.kind={strategy.kind}; "
            "use bf16, fp32, or strategy=ddp"
        )
    if isinstance(config.data, TableData) and strategy.kind not in ("ddp", "fsdp"):
        raise ConfigError(
            f"strategy.kind={strategy.kind}: models for tables are not divided within or between their layers; use "
            "strategy=ddp or fsdp"
        )
    if isinstance(strategy, TensorParallel | FSDPTensorParallel):
        _check_tensor(config, strategy.kind, num_workers // replicas)
    if isinstance(strategy, ContextParallel):
        _check_context(config, num_workers // replicas)
    if isinstance(strategy, Pipeline):
        _check_pipeline(config, train, num_workers // replicas, num_micro_batches, train.global_batch_size // replicas)


def _check_tensor(config: SweepConfig, kind: str, size: int) -> None:
    model = config.model
    if isinstance(model, ConvNet):
        raise ConfigError(
            f"strategy.kind={kind}: a model.kind=conv_net cannot be split within its layers; use strategy=ddp, fsdp or "
            "pipeline, or model=vision_transformer"
        )
    key = "strategy.tensor_size" if kind == "fsdp_tensor_parallel" else "strategy.size"
    _check_heads(key, _heads(model), size)


def _check_context(config: SweepConfig, size: int) -> None:
    model = config.model
    if not isinstance(model, CausalLM):
        raise ConfigError(
            "strategy.kind=context_parallel: only a model.kind=causal_lm has sequences that can be split; use "
            "strategy=ddp, fsdp or pipeline"
        )
    if model.attention == "eager":
        raise ConfigError(
            "strategy.kind=context_parallel: model.attention=eager is unsuitable for long sequences; use sdpa, "
            "flash_attention_2 or flex_attention"
        )
    other = sorted(set(model_facts(model).get("layer_types") or ()) - _ATTENTIONS)
    if other:
        raise ConfigError(
            f"strategy.kind=context_parallel: model.path={model.path} has layers ({', '.join(other)}) whose sequences "
            "cannot be split; use strategy=fsdp"
        )
    _check_heads("strategy.size", _heads(model), size)


_ATTENTIONS = {"full_attention", "sliding_attention", "chunked_attention"}
"""Layer types of transformers in which tokens interact by attention only."""


def _heads(model: object) -> dict[str, int]:
    """Return the numbers of heads by their names in the config."""
    if isinstance(model, VisionTransformer):
        return {"model.heads": model.heads}
    if isinstance(model, CausalLM):
        facts = model_facts(model)
        names = ("num_attention_heads", "num_key_value_heads")
        return {f"{name} of model.path={model.path}": facts[name] for name in names if facts.get(name)}
    return {}


def _check_heads(key: str, heads: dict[str, int], size: int) -> None:
    for name, number in heads.items():
        if number % size:
            fits = [each for each in range(1, number + 1) if number % each == 0]
            raise ConfigError(
                f"{key}: {size} workers cannot share the {number} heads ({name}) equally; set it to one of {fits}"
            )


def _check_pipeline(config: SweepConfig, train: Train, stages: int, num_micro_batches: int, share: int) -> None:
    parts = _num_parts(config)
    if parts is not None and stages > parts:
        raise ConfigError(
            f"strategy.stages: the model has {parts} parts that can be stages, fewer than {stages}; set it to at most "
            f"{parts}"
        )
    if train.micro_batch_size == "auto":
        raise ConfigError(
            "train.micro_batch_size=auto: cannot be measured with strategy.kind=pipeline; set it to null, "
            "which gives every stage enough micro batches, or to a number"
        )
    if num_micro_batches < stages:
        fits = [size for size in range(1, share + 1) if share % size == 0 and share // size >= stages]
        fix = (
            f"set train.micro_batch_size to one of {fits}"
            if fits
            else f"set train.global_batch_size to at least {stages} for each pipeline"
        )
        key = "global_batch_size" if train.micro_batch_size is None else "micro_batch_size"
        raise ConfigError(
            f"train.{key}={getattr(train, key)}: with {num_micro_batches} micro batches for {stages} stages "
            f"(strategy.kind=pipeline), some stages would always be idle; {fix}"
        )


def _num_parts(config: SweepConfig) -> int | None:
    """Return the number of model parts that can be pipeline stages; None if only a worker can determine it."""
    model = config.model
    if isinstance(model, ConvNet):
        return 2 * model.blocks + 1  # a convolution and a normalisation each, and the classifier
    if isinstance(model, VisionTransformer):
        return model.depth + 2  # the embedding and the head
    if isinstance(model, CausalLM):
        return model_facts(model).get("num_hidden_layers")
    return None
