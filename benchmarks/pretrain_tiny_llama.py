"""Pretraining of ``builtin:tiny_llama``, the base model that the default sweep adapts with LoRA.

    PYTHONPATH=src python benchmarks/pretrain_tiny_llama.py [--steps N] [--out DIR]

A byte-level Llama learns the code of Python's standard library without its docstrings, on two CPU cores in about a
quarter of an hour. The weights ship with Sweeps, so that a first sweep needs neither network nor GPU.
"""

from __future__ import annotations

import argparse
import ast
import json
import logging
import math
import platform
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM

from sweeps_train.data.standard_library import Split, docstrings, parse, source_files, split_of
from sweeps_train.models.causal_lm import BUILTIN_MODELS

_log = logging.getLogger(__name__)

FOLDER = BUILTIN_MODELS["builtin:tiny_llama"]
"""Folder of the pretrained model."""

PAD, EOS, FIRST_BYTE = 0, 1, 3
"""Token ids of ByT5's tokenizer: byte b is token b + 3."""

# One step in eight has long sequences, so that every position that the config allows is trained; the others have short
# ones, whose attention takes a third less time for as many tokens.
TOKENS_PER_STEP = 4096
SHORT, LONG, LONG_EVERY = 256, 1024, 8

PEAK_LR = 3e-3
WARMUP_STEPS = 100


def new_model() -> LlamaForCausalLM:
    """Build an initialised model of about 0.7 million parameters."""
    config = LlamaConfig(
        vocab_size=384,  # ByT5's: 3 special tokens, 256 bytes, and 125 spare rows up to a round number
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=LONG,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=None,
        eos_token_id=EOS,
    )
    return LlamaForCausalLM(config)


def token_stream(texts: Iterable[str]) -> torch.Tensor:
    """Tokens of all texts in one row of shape (tokens,), with an end-of-text token after each text.

    >>> token_stream(["ab"])
    tensor([100, 101,   1])
    """
    rows = []
    for text in texts:
        tokens = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long() + FIRST_BYTE
        rows += [tokens, torch.tensor([EOS])]
    return torch.cat(rows)


@torch.no_grad()
def heldout_loss(model: torch.nn.Module, texts: Iterable[str], sequence_length: int = SHORT) -> float:
    """Mean loss per token, in nats, over the texts packed into full sequences; the remainder is dropped."""
    stream = token_stream(texts)
    sequences = stream[: len(stream) // sequence_length * sequence_length].view(-1, sequence_length)
    model.eval()
    total = sum(model(input_ids=part, labels=part).loss.item() * len(part) for part in torch.split(sequences, 32))
    return float(total / len(sequences))


def pretrain(steps: int, seed: int = 0) -> LlamaForCausalLM:
    """Train a new model on the code of the modules that are not held out, and log the loss."""
    torch.manual_seed(seed)
    model = new_model()
    stream = token_stream(code_without_docstrings("train"))
    _log.info("%d parameters, %d tokens", sum(weight.numel() for weight in model.parameters()), len(stream))

    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _warmup_then_cosine(step, steps))
    model.train()
    started, recent = time.perf_counter(), 0.0
    for step in range(1, steps + 1):
        length = LONG if step % LONG_EVERY == 0 else SHORT
        starts = torch.randint(len(stream) - length, (TOKENS_PER_STEP // length, 1))
        batch = stream[starts + torch.arange(length)]
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        recent = loss.item() if step == 1 else 0.98 * recent + 0.02 * loss.item()
        if step == 1 or step % 100 == 0 or step == steps:
            seconds = time.perf_counter() - started
            _log.info("step %d/%d  loss %.3f  %.0f ms/step", step, steps, recent, seconds / step * 1e3)
    return model


def save(model: LlamaForCausalLM, folder: Path) -> None:
    """Write weights, configs and tokenizer, in the format of transformers' Auto classes."""
    model.save_pretrained(folder)
    # Written here: save_pretrained would add 25 KB about 125 unused sentinel tokens of T5's pretraining.
    tokenizer = {
        "tokenizer_class": ByT5Tokenizer.__name__,
        "extra_ids": 0,
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "model_max_length": LONG,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer, indent=2) + "\n")


def model_card(model: LlamaForCausalLM, steps: int, code_loss: float, docstring_loss: float) -> str:
    """Text of the folder's README: size of the model, training data, and measured losses."""
    config = model.config
    parameters = sum(weight.numel() for weight in model.parameters())
    return f"""\
# tiny_llama

A byte-level Llama of {parameters:,} parameters: {config.num_hidden_layers} layers, width {config.hidden_size}, \
{config.num_attention_heads} heads, {config.max_position_embeddings} positions,
ByT5's byte tokenizer. It is the base model of the default sweep, which adapts it with LoRA in seconds on a CPU.
It is there to try a search on; what it writes is of no use.

It learned from the code of CPython {platform.python_version()}'s standard library, with every docstring cut out \
and a tenth of
the modules held out. The default sweep teaches it those docstrings, none of which it has seen.

| held-out text | loss, nats per byte | bits per byte |
|---|---|---|
| code | {code_loss:.3f} | {code_loss / math.log(2):.3f} |
| docstrings | {docstring_loss:.3f} | {docstring_loss / math.log(2):.3f} |

Measured over all held-out modules, packed into sequences of {SHORT} bytes.

Made by {steps:,} steps of {TOKENS_PER_STEP:,} bytes, in fp32 on a CPU:

    PYTHONPATH=src python benchmarks/pretrain_tiny_llama.py --steps {steps}

The sources it learned from are under the Python Software Foundation License Version 2
(https://docs.python.org/3/license.html), copyright Python Software Foundation.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Pretrain builtin:tiny_llama.")
    parser.add_argument("--steps", type=int, default=2500, help="optimizer steps (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write (default: where the model ships)")
    arguments = parser.parse_args()

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(2)
    model = pretrain(arguments.steps)
    code_loss = heldout_loss(model, code_without_docstrings("eval"))
    docstring_loss = heldout_loss(model, docstrings("eval"))
    _log.info("held-out loss per byte: code %.3f, docstrings %.3f", code_loss, docstring_loss)
    save(model, arguments.out)
    (arguments.out / "README.md").write_text(model_card(model, arguments.steps, code_loss, docstring_loss))


def code_without_docstrings(split: Split = "train") -> Iterator[str]:
    """The standard library's sources with every docstring cut out; comments stay.

    For pretraining: a base model that has never seen a docstring leaves a fine-tuning on docstrings something
    honest to learn. Documentation in other places goes too: any string that stands alone as a statement, and
    what is assigned to a ``__doc__``.
    """
    for path in source_files():
        if split_of(path) == split and (tree := parse(path)):
            code = _cut(path.read_bytes(), list(_documentation(tree))).decode()
            if code.strip():
                yield code


def _documentation(tree: ast.Module) -> Iterator[tuple[ast.stmt, bool]]:
    """Every statement that only documents, and whether a placeholder must replace it."""
    for body in _bodies(tree):
        found = [statement for statement in body if _is_documentation(statement)]
        # A block of nothing else needs one placeholder to stay a block.
        alone = len(found) == len(body)
        for position, statement in enumerate(found):
            yield statement, alone and position == 0


def _is_documentation(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
        target = statement.targets[0]
        return getattr(target, "attr", None) == "__doc__" or getattr(target, "id", None) == "__doc__"
    return _text_of_bare_string(statement) is not None


def _bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """Every block of statements."""
    for owner in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(body := getattr(owner, name, None), list) and body:
                yield body


def _text_of_bare_string(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        value = statement.value.value
        return value if isinstance(value, str) else None
    return None


def _cut(source: bytes, statements: list[tuple[ast.stmt, bool]]) -> bytes:
    """Remove statements from source code; ``...`` stays where a block or a line would otherwise become invalid."""
    # ast counts lines at \n and \r\n, as bytes.splitlines does, and columns in bytes.
    lines: list[bytes | None] = list(source.removeprefix(b"\xef\xbb\xbf").splitlines(keepends=True))
    # From the end, so that two statements on one line do not shift each other's columns.
    for statement, needs_placeholder in sorted(statements, key=lambda pair: (-pair[0].lineno, -pair[0].col_offset)):
        first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno) - 1
        before = (lines[first] or b"")[: statement.col_offset]
        after = (lines[last] or b"")[statement.end_col_offset :]
        lines[first : last + 1] = [None] * (last + 1 - first)
        if needs_placeholder or before.strip() or after.strip():
            lines[first] = before + b"..." + after
    return b"".join(line for line in lines if line is not None)


def _warmup_then_cosine(step: int, steps: int) -> float:
    """Factor of the peak learning rate: linear warm-up, then a half cosine down to zero."""
    if step < WARMUP_STEPS:
        return (step + 1) / WARMUP_STEPS
    return 0.5 * (1 + math.cos(math.pi * (step - WARMUP_STEPS) / max(1, steps - WARMUP_STEPS)))


if __name__ == "__main__":
    main()
