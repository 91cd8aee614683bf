"""Jobs of Slurm: the batch script that runs a sweep on the nodes of a job, and its submission."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from sweeps.config.launch import Slurm
from sweeps.config.scaling import Scaling
from sweeps.errors import UserError
from sweeps.files.whole_files import replacing
from sweeps.launch.submission import MANY, Submission
from sweeps.runtime.reservation import data_cpus_of, reserved_per_worker
from sweeps.storage.location import is_remote

BODY = Path(__file__).with_name("slurm_job.sh")
"""Part of the script that is the same in every job."""
JOBS = ".submitted"
"""Folder in ``output_dir`` with a folder for each submitted sweep: the script, the log, and the state of its job."""

SCRIPT = "job.sh"
"""Name of the script in a job's folder."""


def job_folder(submission: Submission) -> Path:
    """Return the folder of a submitted sweep's job, in ``output_dir``; if that is in an object store, in the working
    folder."""
    given = submission.config.output_dir
    return Path("outputs" if is_remote(given) else given).expanduser().absolute() / JOBS / submission.name


def batch_script(submission: Submission, *, in_place: bool = False) -> str:
    """Return the batch script of a sweep.

    Args:
        in_place: Whether the nodes are those of the current job, whatever the config asks for.

    Raises:
        DoesNotFit: A trial does not fit on the nodes that the job asks for.
    """
    slurm = submission.config.cluster.slurm or Slurm()
    cpus = slurm.cpus_per_node or (None if slurm.exclusive else _cpus_of_node(submission, slurm))
    if not in_place:
        submission.check_fit("cluster.slurm", slurm.nodes, MANY if cpus is None else cpus, slurm.gpus_per_node)
    folder = job_folder(submission)
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {each}" for each in _directives(submission, slurm, cpus, folder)),
            "",
            f"# The sweep {submission.name}, submitted by `python -m sweeps submit --to slurm`.",
            f"# Before sbatch: mkdir -p {shlex.quote(str(folder))}  # Slurm makes no folder for the log",
            *_variables(submission, slurm, folder),
            *_environment(slurm),
            "",
            BODY.read_text(encoding="utf-8"),
        ]
    )


def submit(submission: Submission) -> tuple[str, Path]:
    """Write the script and submit it with sbatch; return the job's id, and the file of its log.

    Raises:
        UserError: There is no sbatch here, or it refused the job; or a job that will start the same sweep is queued.
    """
    if submission.arguments[0] == "run" and str(job_folder(submission) / SCRIPT) in _queued_scripts():
        raise UserError(
            f"--name={submission.name}: a job of this sweep is in Slurm's queue; choose another --name, or cancel it"
        )
    script = _written(submission, batch_script(submission))
    try:
        done = subprocess.run(["sbatch", "--parsable", str(script)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError(
            "there is no sbatch on this machine; submit from a login node of the cluster, or write the script with "
            "--print and submit it there"
        ) from None
    if done.returncode:
        reason = done.stderr.strip() or done.stdout.strip()
        raise UserError(
            f"sbatch: {reason}; cluster.slurm, such as cluster.slurm.cpus_per_node, sets what a job asks for"
        )
    answer = done.stdout.strip().rpartition("\n")[2]  # after a greeting, which some clusters add
    return answer.partition(";")[0], script.with_name("slurm.log")


def _queued_scripts() -> list[str]:
    """Return the scripts of the user's jobs that wait or run; empty if Slurm does not tell."""
    command = ["squeue", "--me", "--noheader", "--states=PENDING,RUNNING", "--format=%o"]
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True, check=False).stdout.decode(errors="replace").splitlines()
    return []


def is_inside_job() -> bool:
    """Whether this process runs inside a Slurm job."""
    return "SLURM_JOB_ID" in os.environ


def run_in_place(submission: Submission) -> int:
    """Run the script on the nodes of the current job, and return its exit status. Ctrl-C reaches the script, too, which
    ends when the trials have saved their state."""
    script = _written(submission, batch_script(submission, in_place=True))
    with subprocess.Popen(["bash", str(script)], env={**os.environ, "in_place": str(os.getpid())}) as process:
        while process.returncode is None:
            with contextlib.suppress(KeyboardInterrupt):
                process.wait()
    return process.returncode


def _written(submission: Submission, text: str) -> Path:
    folder = job_folder(submission)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / SCRIPT) as file:
        file.write_text(text, encoding="utf-8")
    return folder / SCRIPT


def _cpus_of_node(submission: Submission, slurm: Slurm) -> int:
    """Return the CPUs of each node for one trial, or for the trials that share workers, and for as many more as its
    GPUs have room for and the search trains at once; each worker is on one node."""
    config, nodes = submission.config, slurm.nodes
    scaling, search = config.scaling, config.search
    with_gpus = slurm.gpus_per_node > 0 and scaling.placed.use_gpu is not False
    per_worker = reserved_per_worker(scaling.placed, use_gpu=with_gpus)
    shared_by = 1 if scaling.trials_per_group == "auto" else scaling.trials_per_group
    on_node = _workers_of_node(scaling, nodes, groups=1)
    if gpus := per_worker.get("GPU"):
        room = int(slurm.gpus_per_node / gpus + 1e-9)
        # Else a trial may have more workers than the config's own.
        if not scaling.is_elastic and not any(path.startswith("scaling.") for path in config.space):
            most = math.ceil(min(search.num_trials, search.max_concurrent or search.num_trials) / shared_by)
            room = min(room, _workers_of_node(scaling, nodes, groups=most))
        on_node = max(on_node, room)
    groups = max(on_node * nodes // scaling.min_workers, 1)
    return max(math.ceil(on_node * per_worker["CPU"] + data_cpus_of(config) * shared_by * groups / nodes), 1)


def _workers_of_node(scaling: Scaling, nodes: int, groups: int) -> int:
    workers = scaling.min_workers
    return (
        math.ceil(groups / nodes) * workers
        if scaling.placement == "STRICT_PACK"
        else math.ceil(groups * workers / nodes)
    )


def _directives(submission: Submission, slurm: Slurm, cpus: int | None, folder: Path) -> Iterator[str]:
    name = slurm.job_name or (submission.conf if slurm.singleton else submission.name)
    values = {
        "job-name": name,
        "output": str(folder / "slurm.log").replace("%", "%%"),
        "open-mode": "append",
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "time": slurm.time_limit,
        "signal": f"B:USR1@{slurm.stop_before_limit_s}",
        "nodes": slurm.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": cpus,
        "gpus-per-node": slurm.gpus_per_node or None,
        "mem": None if slurm.memory_gib_per_node is None else f"{slurm.memory_gib_per_node}G",
        "dependency": "singleton" if slurm.singleton else None,
        "mail-user": slurm.mail_to,
        "mail-type": None if slurm.mail_to is None else ",".join(slurm.mail_on),
    }
    yield from (f"--{option}={shlex.quote(str(value))}" for option, value in values.items() if value is not None)
    yield "--requeue"
    if slurm.exclusive:
        yield "--exclusive"
    yield from slurm.options


def _variables(submission: Submission, slurm: Slurm, folder: Path) -> Iterator[str]:
    python = slurm.python or ("python3" if slurm.container else sys.executable)
    values = {
        "folder": folder,
        "python": python,
        "temp_dir": slurm.temp_dir,
        "gpus_per_node": slurm.gpus_per_node,
        "max_failures": slurm.max_failures,
        "stop_before_limit_s": slurm.stop_before_limit_s,
        "configs": "\n".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each}" for each in submission.configs),
    }
    yield from (f"{name}={shlex.quote(str(value))}" for name, value in values.items())
    yield f"arguments=({shlex.join(submission.arguments)})"
    srun_options, inside = _container(submission, slurm, folder.parents[1])
    yield f"srun_options=({shlex.join(srun_options)})"
    yield f"inside=({shlex.join(inside)})"


def _container(submission: Submission, slurm: Slurm, outputs: Path) -> tuple[list[str], list[str]]:
    """Return options of srun, and the command that runs inside the container."""
    container = slurm.container
    if container is None:
        return [], []
    here = Path.cwd()
    configs = [each.partition("=")[2] for each in submission.arguments if each.startswith("--config-dir=")]
    folders = [Path(os.path.abspath(each)) for each in (str(outputs), *configs)]  # noqa: PTH100 - links stay
    mounts = [*container.mounts, str(here), *(str(each) for each in folders if not each.is_relative_to(here))]
    if container.runtime == "pyxis":
        pairs = ",".join(each if ":" in each else f"{each}:{each}" for each in mounts)
        return [
            f"--container-image={container.image}",
            f"--container-mounts={pairs}",
            f"--container-workdir={here}",
        ], []
    gpus = ["--nv"] if slurm.gpus_per_node else []
    return [], ["apptainer", "exec", *gpus, "--bind", ",".join(mounts), "--pwd", str(here), container.image]


def _environment(slurm: Slurm) -> Iterator[str]:
    if slurm.modules:
        yield "type module > /dev/null 2>&1 || . /etc/profile"
        yield f"module load {shlex.join(slurm.modules)}"
    yield from slurm.setup
