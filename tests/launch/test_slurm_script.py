"""Batch scripts for Slurm: what they ask for, and mistakes that are found before anything is submitted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.cli import run_command
from sweeps.launch.slurm import batch_script
from sweeps.launch.submission import new_submission


@pytest.fixture(autouse=True)
def here(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return working_folder


def script(*tokens: str, name: str | None = "mine") -> str:
    return batch_script(new_submission(["conf=digits", *tokens], [], name, "submit", "slurm"))


def asked(text: str) -> set[str]:
    return {line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")}


def test_a_job_asks_for_what_the_config_says(here: Path) -> None:
    text = script(
        *("cluster.slurm.partition=gpu", "cluster.slurm.account=vision", "cluster.slurm.time_limit=1-12:00:00"),
        *("cluster.slurm.nodes=4", "cluster.slurm.gpus_per_node=8", "cluster.slurm.cpus_per_node=64"),
        *("cluster.slurm.memory_gib_per_node=200", "cluster.slurm.singleton=true", "cluster.slurm.mail_to=me@a.org"),
        *("cluster.slurm.options=['--constraint=a100']", "cluster.slurm.modules=[cuda/12.8]"),
    )
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    assert asked(text) >= {
        *("--partition=gpu", "--account=vision", "--time=1-12:00:00", "--nodes=4", "--gpus-per-node=8"),
        *("--cpus-per-task=64", "--mem=200G", "--dependency=singleton", "--job-name=digits", "--constraint=a100"),
        *("--mail-user=me@a.org", "--mail-type=END,FAIL,REQUEUE", "--requeue", "--signal=B:USR1@180"),
        *("--open-mode=append", f"--output={here}/outputs/.submitted/mine/slurm.log", "--ntasks-per-node=1"),
    }
    assert "module load cuda/12.8" in text
    assert "ray symmetric-run" in text


def test_a_job_asks_for_the_cpus_of_one_trial_if_the_config_says_nothing() -> None:
    assert "--cpus-per-task=2" in asked(script("scaling.num_workers=2"))
    assert "--cpus-per-task=2" in asked(script("scaling.num_workers=4", "cluster.slurm.nodes=2"))
    assert not any(each.startswith("--cpus-per-task") for each in asked(script("cluster.slurm.exclusive=true")))


def test_the_driver_gets_the_overrides_as_they_were_typed() -> None:
    odd = "train.lr=tag(log, interval(1e-4, 1e-2))"
    line = next(line for line in script(odd).splitlines() if line.startswith("arguments="))
    shown = f"{line}; printf '%s\\n' \"${{arguments[@]}}\""
    done = subprocess.run(["bash", "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        *("run", "conf=digits", odd, "cluster.address=auto", "--name=mine", "--resume", "--json"),
    ]


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        ("pyxis", ["--container-image=/a.sif", "--container-mounts=/data:/data,{here}:{here}"]),
        ("apptainer", ["apptainer exec --bind /data,{here} --pwd {here} /a.sif"]),
    ],
)
def test_a_container_has_the_working_folder_and_the_mounts(here: Path, runtime: str, words: list[str]) -> None:
    text = script(f"cluster.slurm.container={{runtime: {runtime}, image: /a.sif, mounts: [/data]}}")
    assert all(word.format(here=here) in text for word in words)
    assert "python=python3\n" in text


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["cluster.slurm.time_limit=12"], ["cluster.slurm.time_limit", "12:00:00"]),
        (["cluster.slurm.time_limit=soon"], ["time_limit=soon"]),
        (["cluster.slurm.time_limit=0:02:00"], ["time_limit=0:02:00", "stop_before_limit_s=180"]),
        (["cluster.slurm.partition='gpu; rm -rf x'"], ["cluster.slurm.partition"]),
        (["cluster.slurm.options=['partition=gpu']"], ["options", "--"]),
        (["scaling.num_workers=4", "cluster.slurm.cpus_per_node=2"], ["scaling.num_workers=4", "cluster.slurm"]),
        (["scaling.use_gpu=true"], ["GPU", "cluster.slurm"]),
        (["cluster.slurm.partitions=x"], ["cluster.slurm.partitions"]),
    ],
)
def test_mistakes_are_named_before_anything_is_submitted(
    tokens: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["submit", "conf=digits", *tokens, "--to=slurm"])[0] == 2
    message = capsys.readouterr().err
    assert all(word in message for word in words), message
    assert not Path("outputs").exists()


def test_the_script_is_written_and_submitted_with_sbatch(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = here / "bin" / "sbatch"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\nopen('asked', 'w').write(' '.join(sys.argv[1:]))\nprint('42;a')\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert run_command(["submit", "conf=digits", "--to=slurm", "--name=mine", "--json"])[0] == 0
    folder = here / "outputs" / ".submitted" / "mine"
    assert json.loads(capsys.readouterr().out) == {"sweep": "mine", "job": "42", "log": f"{folder}/slurm.log"}
    assert (here / "asked").read_text() == f"--parsable {folder}/job.sh"
    assert "#SBATCH --job-name=mine" in (folder / "job.sh").read_text()


def test_without_sbatch_the_message_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert run_command(["submit", "conf=digits", "--to=slurm"])[0] == 2
    assert "login node" in capsys.readouterr().err


def test_a_print_submits_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["submit", "conf=digits", "--to=slurm", "--print"])[0] == 0
    assert capsys.readouterr().out.startswith("#!/bin/bash\n#SBATCH ")
    assert not Path("outputs").exists()
