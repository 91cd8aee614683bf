"""Key numbers of a sweep."""

from __future__ import annotations

from sweeps.report.formatting import duration
from sweeps.report.report_data import ReportData
from sweeps.texts.wording import counted, counted_states


def tiles(data: ReportData) -> list[tuple[str, str, str]]:
    """Label, value and details of each key number."""
    record = data.record
    found = []
    if record.best is not None and len(record.metrics) == 1 and record.best.value is not None:
        found.append((f"best {record.metric}", f"{record.best.value:.5g}", f"trial {record.best.trial}, {record.mode}"))
    elif record.front:
        found.append(("Pareto front", str(len(record.front)), f"of {counted(len(data.valued), 'trial')}"))
    found.append(("trials", f"{len(record.trials):,}", counted_states(record.counts) or "none yet"))
    took = record.time
    found.append(("time", duration(took.wall_s), f"{duration(took.train_s)} of training, summed over trials"))
    found.append(("goodput", f"{took.goodput:.0%}", "of the workers' time" if took.account else "of the trials' time"))
    if took.gpu_s or took.cpu_s:
        device, seconds = ("GPU", took.gpu_s) if took.gpu_s else ("CPU", took.cpu_s)
        cost = f"cost {took.cost:,.2f}" if took.cost else "held by trials"
        found.append((f"{device} hours", f"{seconds / 3600:,.2f}", cost))
    return found
