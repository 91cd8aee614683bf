"""Workers that have read different data are refused, with what each has read."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest
import torch.distributed as dist
from training_runs import TEXT, configured, on_two_workers, run, write_prompts


def trained_on_different_files(extra: str) -> str:
    rank = dist.get_rank()
    folder = Path(str(rank))
    folder.mkdir(exist_ok=True)
    file = write_prompts(folder)
    if rank == 1:
        lines = file.read_text().splitlines()
        changed = (
            [*lines, lines[0]] if extra == "longer" else [json.dumps({"prompt": "!", "completion": "!"}), *lines[1:]]
        )
        file.write_text("\n".join(changed))
    with pytest.raises(ValueError, match="have read different data") as raised:
        run(configured(TEXT, data={"path": str(file)}, train={"max_steps": 2}))
    return str(raised.value)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_workers_with_other_numbers_of_samples_or_other_contents_are_refused(tmp_path: Path) -> None:
    for text in on_two_workers(partial(trained_on_different_files, "longer"), tmp_path):
        assert re.search(r"worker 0: 20 training and 5 .*worker 1: 21 training and 5 .*data\.revision", text)
    for text in on_two_workers(partial(trained_on_different_files, "other"), tmp_path):
        first, second = re.findall(r"20 training and 5 held-out samples \(fingerprint (\w+)\)", text)
        assert first != second
