"""Schema of models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config.fields import STRICT, Fraction, PositiveFloat, PositiveInt
from sweeps_train.config.reach import Flag, Import, Reach, Text


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
    """Layers that get adapters: ``attention``, ``mlp``, ``all-linear``, or a list of module names."""
    use_rslora: Flag = False
    """Multiply the adapters' output by alpha / sqrt(r) instead (Kalajdzievski, 2023, https://arxiv.org/abs/2312.03732),
    so that high ranks learn as fast as low ones."""
    use_dora: Flag = False
    """Train the norm of each layer's weights beside its adapters (Liu et al., 2024, https://arxiv.org/abs/2402.09353):
    often better at low ranks, and slower."""
    modules_to_save: list[Text] = Field(default_factory=list)
    """Modules that are trained as a whole beside the adapters, by name: ``[embed_tokens, lm_head]`` for new tokens."""


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
    """Attention implementation of transformers (``sdpa``, ``flash_attention_2``, ...); default: chosen by
    transformers."""
    gradient_checkpointing: Flag = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    trust_remote_code: Annotated[bool, Reach.REMOTE_CODE] = False
    """Run model code from the hub. Only for sources that you trust."""
    quantization: Literal["none", "nf4", "int8"] = "none"
    """Hold the frozen base in 4 bits (``nf4``: QLoRA, Dettmers et al., 2023, https://arxiv.org/abs/2305.14314, with
    double quantization) or 8 bits (``int8``), by bitsandbytes: a quarter or half of the memory of 16 bits, and slower.
    Needs ``lora``, and ``strategy=ddp``."""
    lora: Lora | None = None
    """Adapters to train; null trains every weight."""

    def __post_init__(self) -> None:
        if self.quantization != "none" and self.lora is None:
            raise ValueError(
                f"quantization={self.quantization}: weights of this few bits cannot be trained; add adapters "
                "(model.lora), or set quantization to none"
            )
        if self.quantization == "int8" and self.lora is not None and self.lora.use_dora:
            raise ValueError(
                "quantization=int8: peft cannot compute the norms of such weights for lora.use_dora=true; use "
                "quantization=nf4 or none, or lora.use_dora=false"
            )


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
    """Height and width of a patch, in pixels; must divide those of the images."""
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
class Mlp:
    """A multilayer perceptron for tables: embeddings of categories concatenated with the numbers, then layers with
    ReLU."""

    kind: Literal["mlp"]
    width: PositiveInt = 64
    """Outputs of each hidden layer."""
    layers: Annotated[int, Field(ge=0, le=64)] = 2
    """Hidden layers; 0 is a linear model."""
    embedding: PositiveInt | None = None
    """Size of the embedding of each column of categories; default: about the square root of their number, up to 50."""
    dropout: Fraction = 0.0
    """Dropout after each hidden layer."""


@dataclass(config=STRICT, kw_only=True)
class CustomModel:
    """A user's own ``torch.nn.Module``: called with the inputs of a batch, returns logits. For tables these are numbers
    of shape (batch, numbers) and category indices of shape (batch, categories), and the class or function also gets
    those of ``num_numbers``, ``category_sizes`` (a list) and ``num_outputs`` that it has parameters for."""

    kind: Literal["custom"]
    target: Import = Field(alias="_target_")
    """Import path of a class or function that returns the module."""
    arguments: Annotated[dict[str, Any], Reach.ARGUMENTS] = Field(default_factory=dict)
    """Keyword arguments of ``_target_``; each can be searched as ``model.arguments.NAME``."""


Model = Annotated[CausalLM | ConvNet | VisionTransformer | Mlp | CustomModel, Field(discriminator="kind")]
