"""Masks, casts, the loss of a large vocabulary and padding of language models, before and after, on CPUs.

    python benchmarks/language_model.py --write benchmarks/measurements.md

takes some minutes on an idle core. Each comparison has one step of a training as transformers and peft make it, and as
``sweeps_train`` does; both in processes of their own with one thread, in the order ABBA. The losses must agree.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from results_document import markdown_table, write_between_marks
from trained.tables import machine

HEADERS = ["comparison", "", "seconds a step", "memory", "loss"]
ALIKE = 2e-3
"""Largest relative difference of two losses: rounding in 16 bits."""

Step = Callable[[], Any]


def loss_of_a_large_vocabulary(*, ours: bool) -> Step:
    """Head and loss of 2,048 tokens of width 64, with a vocabulary of 128,000."""
    import torch
    from torch.nn import functional

    from sweeps_train.tasks.cross_entropy import full_cross_entropy, linear_cross_entropy

    hidden, weight = (torch.randn(number, 64).requires_grad_() for number in (2048, 128_000))
    targets = torch.randint(128_000, (2048,))

    def step() -> Any:
        hidden.grad = weight.grad = None
        if ours:
            loss = linear_cross_entropy(hidden, weight, None, targets)
        else:
            loss = full_cross_entropy(functional.linear(hidden, weight), targets)
        (loss / 2048).backward()
        return loss.detach() / 2048

    return step


def _llama() -> Any:
    """A Llama of 4 million parameters with grouped queries."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "vocab_size": 4096}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, max_position_embeddings=4096))


def _train(model: Any, mask: Any, length: int, *, autocast: bool = False) -> Step:
    import torch

    tokens = torch.randint(4096, (2, length))
    targets = tokens.clone()
    targets[1, length // 2 :] = -100  # the second sequence is half as long

    def step() -> Any:
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = model(input_ids=tokens, attention_mask=mask(tokens), use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        loss.backward()
        return loss.detach()

    return step


def padding(*, ours: bool) -> Step:
    """A Llama on two sequences of 1,024 and 512 tokens."""
    import torch

    from sweeps_train.models.attention import use_causal_attention

    model = _llama()
    if ours:
        assert use_causal_attention(model)
        return _train(model, torch.ones_like, 1024)

    def mask(tokens: Any) -> Any:
        is_text = torch.ones_like(tokens)
        is_text[1, 512:] = 0
        return is_text

    return _train(model, mask, 1024)


def casts(*, ours: bool) -> Step:
    """LoRA on all layers of a Llama in bfloat16, on two sequences of 256 tokens under autocast."""
    import torch
    from peft import LoraConfig, get_peft_model

    from sweeps_train.models.attention import use_causal_attention
    from sweeps_train.models.lora import leave_casts_to_autocast

    adapters = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(_llama().to(torch.bfloat16), adapters)
    use_causal_attention(model)
    if ours:
        leave_casts_to_autocast(model)
    return _train(model, torch.ones_like, 256, autocast=True)


def prompts(*, ours: bool) -> Step:
    """A global batch of 16 prompts and answers of 14 to 512 tokens, in micro batches of 4."""
    import numpy as np
    import torch

    from sweeps_train.data.packing import TextSamples, to_arrays
    from sweeps_train.data.sample_order import in_batches, longest_first
    from sweeps_train.models.attention import use_causal_attention

    model = _llama()
    use_causal_attention(model)
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(4.5, 1.0, 16).astype(int), 14, 512)
    documents = ((random.integers(4096, size=length).tolist(), [True] * length) for length in lengths)
    samples = TextSamples(to_arrays(documents, 4096, packed=False), 0)
    order = longest_first(samples, range(16)) if ours else range(16)
    batches = [samples.batch(indices) for indices in in_batches(order, 4)]
    units = samples.units(range(16))

    def step() -> Any:
        model.zero_grad()
        total = torch.zeros(())
        for batch in batches:
            tokens = batch["input_ids"]
            logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(
                logits.float().flatten(0, 1), batch["targets"].flatten(), reduction="sum"
            )
            (loss / units).backward()
            total += loss.detach()
        return total / units

    return step


COMPARISONS = {
    "head and loss of 2,048 tokens, vocabulary 128,000": loss_of_a_large_vocabulary,
    "padded batch of 2 x 1,024 tokens": padding,
    "LoRA in bfloat16, 2 x 256 tokens": casts,
    "16 prompts of 14 to 512 tokens, in micro batches of 4": prompts,
}


def _measured(comparison: str, ours: bool, steps: int, results: Any) -> None:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore", category=FutureWarning)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    step = COMPARISONS[comparison](ours=ours)
    before = _peak_mib()
    loss = float(step())
    seconds = []
    for _ in range(steps):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    results.put({"loss": loss, "seconds": seconds, "mib": _peak_mib() - before})


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(comparison: str, steps: int) -> dict[str, dict[str, float]]:
    """Median seconds, memory of a step in MiB and loss, of transformers and of ours."""
    context = multiprocessing.get_context("spawn")
    found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for ours in (False, True, True, False):
        results = context.Queue()
        process = context.Process(target=_measured, args=(comparison, ours, steps, results))
        process.start()
        found[ours].append(results.get())
        process.join()
    numbers = {
        name: {
            "seconds": statistics.median(second for run in found[ours] for second in run["seconds"]),
            "mib": statistics.median(run["mib"] for run in found[ours]),
            "loss": found[ours][0]["loss"],
        }
        for name, ours in (("before", False), ("after", True))
    }
    difference = abs(numbers["after"]["loss"] / numbers["before"]["loss"] - 1)
    assert difference < ALIKE, f"{comparison}: the losses differ by {difference:.1%}"
    return numbers


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """The numbers as Markdown."""
    rows = [
        [
            title if arm == "before" else "",
            arm,
            f"{each['seconds']:.2f}",
            f"{each['mib']:,.0f} MiB",
            f"{each['loss']:.5f}",
        ]
        for title, arms in found.items()
        for arm, each in arms.items()
    ]
    return markdown_table(HEADERS, rows, left=2)


@click.command()
@click.option("--steps", default=3, show_default=True, type=click.IntRange(1), help="Measured steps of each process.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the numbers to this file.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), metavar="FILE.md", help="Update its numbers.")
def main(steps: int, json_file: Path | None, write: Path | None) -> None:
    """Measure what changed for language models."""
    here = machine()
    found = {comparison: measure(comparison, steps) for comparison in COMPARISONS}
    print(table(found))
    if json_file is not None:
        json_file.write_text(json.dumps({"machine": here, "numbers": found}, indent=1) + "\n", encoding="utf-8")
    if write is not None:
        write_between_marks(write, {"language models": f"{table(found)}\n\n{here}"})


if __name__ == "__main__":
    main()
