"""Trainings that compile nothing do not import torch's compiler, and train like those with it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

TRAINS = """
import json, sys
import torch
import torch.distributed as dist

if "loaded" in sys.argv:
    import torch._dynamo

from sweeps_train.compat.late_compiler import leave_out_of, wrap
from sweeps_train.lanes.lockstep import Lockstep

dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
torch.manual_seed(0)
layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.1), torch.nn.Linear(4, 1))
model = wrap(layer)
losses = []
for kind in (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD):
    leave_out_of(kind)
    leave_out_of(kind)  # as in the next trial of a worker
    optimizer = kind(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    optimizer.load_state_dict(optimizer.state_dict())
loaded = [name for name in ("torch._dynamo", "sympy", "torch.distributed.tensor") if name in sys.modules]

compiled = torch.compile(lambda x: x * 2, backend="eager")
assert compiled(torch.ones(1)).item() == 2
assert "torch._dynamo" in sys.modules
assert torch._dynamo is sys.modules["torch._dynamo"]

def step():
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().sum().backward()
    optimizer.step()
    return optimizer.state_dict()

torch.compile(step, backend="eager")()
dist.destroy_process_group()
print(json.dumps([losses, loaded]))
"""


@pytest.fixture(scope="module")
def trained() -> dict[str, tuple[list[float], list[str]]]:
    """Losses, and libraries that were loaded then, without the compiler and with it."""
    return {
        name: json.loads(
            subprocess.run(
                [sys.executable, "-c", TRAINS, name], capture_output=True, text=True, timeout=250, check=True
            ).stdout.splitlines()[-1]
        )
        for name in ("late", "loaded")
    }


def test_a_training_imports_neither_compiler_nor_sharded_tensors(
    trained: dict[str, tuple[list[float], list[str]]],
) -> None:
    assert trained["late"][1] == []
    assert "torch._dynamo" in trained["loaded"][1]


def test_the_losses_are_those_with_the_compiler_loaded(trained: dict[str, tuple[list[float], list[str]]]) -> None:
    late, loaded = trained["late"][0], trained["loaded"][0]
    assert len(late) == 9
    assert late == loaded
