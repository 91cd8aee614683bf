"""Puts results into the documents, part by part: a part that has none leaves its document as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from results_document import markdown_table, write_between_marks

from gpu.speed import TRAINER

Found = Mapping[str, Any]
SPEEDUP, UTILIZATION, MEMORY = 1.1, 0.4, 0.15
"""Aims: speed relative to Hugging Face's ``Trainer``, part of the GPU's peak, and error of the memory plan."""


def write_documents(results: Sequence[Found], docs: Path) -> list[Path]:
    """Write the texts of all parts that have results, and return the documents that have changed.

    Raises:
        ValueError: The results are those of a CPU.
    """
    machine = next(each for each in results if each["part"] == "machine")
    if machine["tiny"]:
        raise ValueError("these are results of --tiny, which shows that the parts run; documents have those of a GPU")
    where = described(machine)
    written = []
    for part, document, texts in PARTS:
        found = [each for each in results if each["part"] == part]
        if new := texts(found, where):
            write_between_marks(docs / document, new)
            written.append(docs / document)
    return written


def described(machine: Found) -> str:
    """Card, versions, commit and date."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    date = machine["at"].split()[0]
    return (
        f"{machine['card']}, {machine['cores']} cores, Python {machine['python']}, {versions}; "
        f"commit {machine['commit']}; {date}"
    )


def speed(results: Sequence[Found], where: str) -> dict[str, str]:
    """Table of LoRA: one row for each arm. All compute the same, so that FLOPs counted by ours are those of all."""
    arms = [each for each in results if each["what"] == "arm"]
    if not arms:
        return {}
    headers = ["", "loop", "tokens per second", "speed relative to `Trainer`", "FLOP utilisation", "GPU memory"]
    headers += ["first step", "until compiled", "loss"]
    rows, said = [], []
    for model, batch in dict.fromkeys((each["model"], each["batch"]) for each in arms):
        group = [each for each in arms if (each["model"], each["batch"]) == (model, batch)]
        by_arm = {each["arm"]: each for each in group}
        theirs = by_arm.get(TRAINER.title)
        counted = next((each["utilization_per_speed"] for each in group if "utilization_per_speed" in each), None)
        for number, arm in enumerate(group):
            relative = "" if theirs is None or arm is theirs else _relative(arm, theirs)
            used = "" if counted is None else f"{counted * arm['tokens_per_second']:.1%}"
            memory = "" if arm["peak_gpu_mib"] is None else f"{arm['peak_gpu_mib'] / 1024:.1f} GiB"
            rows.append(
                [
                    f"{model}, {batch} tokens" if number == 0 else "",
                    arm["arm"],
                    f"{arm['tokens_per_second']:,.0f}",
                    relative,
                    used,
                    memory,
                    f"{arm['first_step_s']:.1f} s",
                    f"{arm['warm_s']:.1f} s",
                    f"{arm['loss']:.4g}",
                ]
            )
        said += _reached(f"{model}, {batch} tokens", by_arm, counted)
    lines = [markdown_table(headers, rows, left=2), "", *said, *_costs_of_a_step(results)]
    lines += [
        f"- {each['model']}, {each['batch']} tokens, {each['arm']}: failed, {each['error']}"
        for each in _failed(results)
    ]
    return {"GPU": where, "LoRA": "\n".join(lines)}


def _relative(arm: Found, theirs: Found) -> str:
    """Ratio of the median speeds, and what it would be with the slowest and the fastest blocks of the arm."""
    slow, fast = (theirs["step_s"] / block for block in (max(arm["blocks"]), min(arm["blocks"])))
    return f"**{theirs['step_s'] / arm['step_s']:.2f}** ({slow:.2f} to {fast:.2f})"


def _reached(title: str, by_arm: Mapping[str, Found], counted: float | None) -> list[str]:
    theirs = by_arm.get(TRAINER.title)
    ours = [arm for name, arm in by_arm.items() if name != TRAINER.title]
    if theirs is None or not ours:
        return []
    fastest = max(ours, key=lambda arm: float(arm["tokens_per_second"]))
    speedup = fastest["tokens_per_second"] / theirs["tokens_per_second"]
    used = None if counted is None else counted * fastest["tokens_per_second"]
    fast = "reached" if speedup >= SPEEDUP else "not reached"
    busy = "unknown" if used is None else f"{used:.0%}, {'reached' if used >= UTILIZATION else 'not reached'}"
    line = f"- {title}: {fastest['arm']} is fastest, {speedup:.2f} times `Trainer`; the aim of {SPEEDUP} is {fast}"
    return [f"{line}. Part of the peak (the aim is {UTILIZATION:.0%} for the larger model): {busy}"]


def _costs_of_a_step(results: Sequence[Found]) -> list[str]:
    lines = []
    for each in results:
        if each["what"] == "profile":
            device, step, optimizer = (1000 * each[name] for name in ("device_s", "step_s_profiled", "optimizer_cpu_s"))
            lines.append(
                f"- A step of {each['model']} with {each['batch']} tokens launches {each['launches']:,.0f} kernels and "
                f"computes {device:.1f} ms on the GPU, of {step:.1f} ms under the profiler; the optimizer takes "
                f"{optimizer:.1f} ms of the processor"
            )
    for each in results:
        if each["what"] == "imports":
            seconds = ", ".join(f"`{name}` {seconds:.1f} s" for name, seconds in each["seconds"].items())
            lines.append(f"- Imports before all of them, in this order: {seconds}")
    return lines


def _failed(results: Sequence[Found]) -> list[Found]:
    return [each for each in results if each["what"] == "failed"]


def tests(results: Sequence[Found], where: str) -> dict[str, str]:
    """Table of the tests marked ``gpu``."""
    ran = [each for each in results if each["what"] == "test"]
    if not ran:
        return {}
    rows = [[each["name"], each["result"], f"{each['seconds']:.0f} s"] for each in ran]
    reasons = [f"- {each['name']}: {each['reason']}" for each in ran if each["reason"]]
    table = markdown_table(["test", "result", "time"], rows, left=2)
    return {"GPU tests": "\n".join([table, "", *reasons, *_unfinished(results), where])}


def memory(results: Sequence[Found], where: str) -> dict[str, str]:
    """Table of planned and measured memory."""
    cases = [each for each in results if each["what"] == "case"]
    if not cases:
        return {}
    rows = [
        [
            each["case"],
            f"{each['planned_mib']:,.0f} MiB",
            f"{each['measured_mib']:,.0f} MiB",
            f"{each['ratio']:.2f}",
            "yes" if abs(each["ratio"] - 1) <= MEMORY else "no",
        ]
        for each in cases
    ]
    headers = ["training, sequences x tokens", "planned", "measured peak", "ratio", f"within {MEMORY:.0%}"]
    return {"GPU memory": "\n".join([markdown_table(headers, rows), "", *_unfinished(results), where])}


def snapshots(results: Sequence[Found], where: str) -> dict[str, str]:
    """Tables of saving and resuming, of the sizes whose comparison is complete."""
    from checkpoint import COPY, OURS, SYNCHRONOUS, recovery_table, saving_table

    numbers: dict[int, dict[str, Any]] = {}
    for each in results:
        of_size = numbers.setdefault(each["mib"], {"saving": {}, "recovery": {}}) if "mib" in each else {}
        if each["what"] == "save":
            of_size["saving"][each["arm"]] = {"first": each["first"], "next": each["next"]}
        elif each["what"] == "recovery":
            of_size["recovery"] = each
    saved = {mib: each for mib, each in sorted(numbers.items()) if {COPY, OURS, SYNCHRONOUS} <= set(each["saving"])}
    resumed = {mib: each for mib, each in sorted(numbers.items()) if each["recovery"]}
    texts = {"saving on a GPU": saving_table({1: saved})} if saved else {}
    if resumed:
        texts["recovery on a GPU"] = recovery_table({1: resumed})
    return texts | {"machine on a GPU": where} if texts else {}


def sweep(results: Sequence[Found], where: str) -> dict[str, str]:
    """Table of a whole sweep."""
    rows = [
        [
            str(each["trials"]),
            f"{each['first_trial_s']:.0f} s",
            f"{each['trial_s']:.1f} s",
            f"{each['computing_s']:.1f} s",
            f"{each['overhead_s']:.2f} s",
            f"{each['trials_per_hour']:,.0f}",
            "unknown" if each["gpu_use"] is None else f"{each['gpu_use']:.0%}",
        ]
        for each in results
        if each["what"] == "sweep"
    ]
    headers = ["trials", "first trial after", "each further one", "of which computing", "overhead", "trials an hour"]
    headers.append("GPU busy")
    return {"GPU sweep": f"{markdown_table(headers, rows)}\n\n{where}"} if rows else {}


def _unfinished(results: Sequence[Found]) -> list[str]:
    ends = [each for each in results if each["what"] == "end" and each["end"] == "limit"]
    return [f"- The limit of {each['limit_s']:.0f} s ended this part before all of it was measured" for each in ends]


PARTS: tuple[tuple[str, str, Callable[[Sequence[Found], str], dict[str, str]]], ...] = (
    ("speed", "training.md", speed),
    ("gpu_tests", "gpu_checklist.md", tests),
    ("memory", "gpu_checklist.md", memory),
    ("snapshots", "checkpoint_speed.md", snapshots),
    ("sweep", "performance.md", sweep),
)
"""Part, document, and what makes its texts."""
