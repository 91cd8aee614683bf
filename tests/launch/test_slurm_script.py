"""Batch scripts for Slurm: what they ask for, and mistakes that are found before anything is submitted."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fork_server import run_forked
from verbs import refusal
from waiting import wait_until

from sweeps.cli import run_command
from sweeps.launch.slurm import batch_script, run_in_place
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


def test_the_log_of_a_job_is_where_the_message_says_also_in_a_folder_with_a_percent_sign(here: Path) -> None:
    """Slurm would write the number of the job for ``%j``."""
    assert f"--output={here}/5%%jobs/.submitted/mine/slurm.log" in asked(script("output_dir=5%jobs"))


def test_a_job_asks_for_the_cpus_of_one_trial_if_the_config_says_nothing() -> None:
    assert "--cpus-per-task=2" in asked(script("scaling.num_workers=2"))
    assert "--cpus-per-task=2" in asked(script("scaling.num_workers=4", "cluster.slurm.nodes=2"))
    large = ("scaling.num_workers=4", "scaling.resources_per_worker.CPU=2")
    assert "--cpus-per-task=4" in asked(script(*large, "cluster.slurm.nodes=3")), "workers are not cut in two"
    assert "--cpus-per-task=8" in asked(script(*large, "cluster.slurm.nodes=2", "scaling.placement=STRICT_PACK"))
    assert not any(each.startswith("--cpus-per-task") for each in asked(script("cluster.slurm.exclusive=true")))


def test_a_job_asks_for_the_cpus_of_as_many_trials_as_its_gpus_have_room_for() -> None:
    gpus = "cluster.slurm.gpus_per_node=8"
    assert "--cpus-per-task=8" in asked(script(gpus))
    assert "--cpus-per-task=16" in asked(script(gpus, "scaling.resources_per_worker.CPU=2"))
    assert "--cpus-per-task=32" in asked(
        script(gpus, "scaling.num_workers=1", "+scaling.resources_per_worker.GPU=0.25", "search.num_trials=40")
    )
    assert "--cpus-per-task=2" in asked(script(gpus, "scaling.use_gpu=false"))
    assert "--cpus-per-task=6" in asked(script(gpus, "search.max_concurrent=3"))
    assert "--cpus-per-task=2" in asked(script(gpus, "search.num_trials=1"))
    assert "--cpus-per-task=8" in asked(script(gpus, "search.max_concurrent=1", "scaling.num_workers=choice(1,2,4)"))
    assert "--cpus-per-task=3" in asked(script(gpus, "search.max_concurrent=3", "cluster.slurm.nodes=2"))


@pytest.mark.parametrize(
    ("cpus", "note"), [("8", ""), ("3", "cluster.slurm: 3 CPUs and 8 GPUs a node run 1 trial at once")]
)
def test_gpus_that_too_few_cpus_leave_unused_are_told(cpus: str, note: str, caplog: pytest.LogCaptureFixture) -> None:
    nodes = ("cluster.slurm.gpus_per_node=8", f"cluster.slurm.cpus_per_node={cpus}")
    assert run_command(["submit", "conf=digits", *nodes, "--to=slurm", "--print"])[0] == 0
    assert note in caplog.text
    assert bool(note) == ("GPUs unused" in caplog.text)


PROGRAMS = {
    "scontrol": """
        case "$*" in
          "show hostnames"*) printf 'n1\\nn2\\n' ;;
          "show node n2"*) echo "NodeName=n2 NodeAddr=10.0.0.2 State=MIXED" ;;
          "show job --details 7")
            echo "   JOB_GRES=gpu:9"
            echo "     Nodes=n1 CPU_IDs=0-15 Mem=0 GRES=gpu:a100:3(IDX:0-2),gpu:h100:2(IDX:3,5),shard:8(0/8)"
            echo "     Nodes=n2 CPU_IDs=0-1 Mem=0 GRES=gpu:4(IDX:0-3)"
          ;;
        esac
    """,
    "ip": 'echo "$4 dev eth0 src ${ON_NODE:-10.9.9.9}"',  # 10.9.9.9: the login node
    "srun": """
        echo "$*" >> sruns
        env > environment
        while [ "${1#--}" != "$1" ]; do shift; done
        export ON_NODE=10.0.0.1 SLURM_NODEID=0 SLURM_CPUS_ON_NODE=2 ROCR_VISIBLE_DEVICES=0,1
        exec "$@"
    """,
    # On another node, through NFS, which remembers for a minute that a file is missing.
    "ray": 'env > environment_of_ray; echo "$*" > ray_arguments; [ -e "$status" ] && echo 0 > "$status"',
    "python": '[[ "$*" = *memory_of_node* ]] && echo 700 300',
}
"""Programs that do as Slurm and Ray would, as far as the script sees it, in a shell of `salloc` on the login node."""


def path_with(here: Path, programs: dict[str, str]) -> str:
    """Make programs from texts of bash, and return a PATH on which they are first."""
    (here / "bin").mkdir()
    for name, text in programs.items():
        (here / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (here / "bin" / name).chmod(0o755)
    return f"{here}/bin:{os.environ['PATH']}"


def run_in_salloc(here: Path, **variables: str) -> list[str]:
    """Run the script on two nodes, in a shell with these variables; returns the environment of Ray."""
    own = ("cluster.slurm.nodes=2", "cluster.slurm.cpus_per_node=2", f"cluster.slurm.python={here}/bin/python")
    (here / "job.sh").write_text(script(*own))
    environment = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "in_place": "1",
        "SLURM_JOB_CPUS_PER_NODE": "16,2",
        "SLURM_CPUS_PER_TASK": "1",  # of another task of the job
        "SLURM_CPU_BIND": "mask_cpu:0x1",
        "SLURM_GPUS_PER_TASK": "1",
        "SLURM_TRES_PER_TASK": "gres/gpu:1",
        "SLURM_GPU_BIND": "single:1",
        "SLURM_EXPORT_ENV": "NONE",
        "PATH": path_with(here, PROGRAMS),
        **variables,
    }
    done = subprocess.run(["bash", "job.sh"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return (here / "environment_of_ray").read_text().splitlines()


@pytest.mark.parametrize(("given", "expected"), [({}, "0"), ({"RAY_memory_monitor_refresh_ms": "250"}, "250")])
def test_the_kernel_and_not_rays_monitor_kills_when_memory_runs_out_unless_the_user_wants_it(
    here: Path, given: dict[str, str], expected: str
) -> None:
    assert f"RAY_memory_monitor_refresh_ms={expected}" in run_in_salloc(here, **given)


def test_in_salloc_on_the_login_node_the_first_node_is_the_head_and_unequal_nodes_and_amds_gpus_are_used(
    here: Path,
) -> None:
    of_ray = run_in_salloc(here)
    arguments = (here / "ray_arguments").read_text()
    assert "--address 10.0.0.1:" in arguments
    assert "--num-cpus=2 --num-gpus=4 " in arguments, "those of the job, whatever the config asks for"
    assert "--memory=700 --object-store-memory=300 " in arguments
    asked_of_srun = (here / "sruns").read_text()
    assert "--cpus-per-task=2 " in asked_of_srun, "the smallest node's"
    assert asked_of_srun.count("--export=ALL") == 2, "sbatch --export=NONE would leave the nodes without variables"
    assert "--gpus-per-node=4 " in asked_of_srun, "else it would be the GPUs of one task of the job"
    of_step = (here / "environment").read_text()
    assert not any(f"SLURM_{name}" in of_step for name in ("CPU_BIND", "GPU_BIND", "GPUS_PER_TASK", "TRES_PER_TASK"))
    assert "HIP_VISIBLE_DEVICES=0,1" in of_ray
    assert not any(line.startswith("ROCR_VISIBLE_DEVICES") for line in of_ray)


JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_CPUS_PER_NODE": "2"}
INTERRUPTED = """
while [ ! -s "$stop" ]; do sleep 0.1; done
sleep 0.5
touch saved
echo 130 > "$status"
"""
"""A driver in a step of srun, and its reaction to Ctrl-C."""


@pytest.mark.parametrize("status", ["", "130", "2"])
def test_a_job_that_slurm_preempts_goes_back_into_the_queue_and_has_not_failed(here: Path, status: str) -> None:
    """During the time of grace it is still running; of its processes those of the steps have got SIGTERM."""
    printed = run_preempted(here, status)
    assert "preempted by another job; the job goes back into the queue" in printed
    assert (here / "requeued").exists()
    assert not list(here.rglob("failures-*"))


@pytest.mark.parametrize(("state", "suspended"), [("COMPLETING", "None"), ("RUNNING", "2026-11-30T13:00:00")])
def test_a_job_that_is_cancelled_or_was_suspended_before_does_not_count_as_preempted(
    here: Path, state: str, suspended: str
) -> None:
    assert "interrupted" in run_preempted(here, "130", state, suspended)
    assert not (here / "requeued").exists()


def run_preempted(here: Path, status: str, state: str = "RUNNING", suspended: str = "None") -> str:
    """Run the script of a job that has a time of preemption, and return what it prints."""
    job = f"JobId=7 JobState={state} Restarts=0 PreemptEligibleTime=2026-11-30T14:00:00 "
    job += f"PreemptTime=2026-11-30T14:18:29 SuspendTime={suspended} SecsPreSuspend=0"
    programs = {
        "srun": f'[ -z "{status}" ] || echo {status} > "$status"',
        "scontrol": f"""[ "$1" = requeue ] && touch requeued; echo "{job}" """,
        "sleep": "",
    }
    environment = {**JOB, "PATH": path_with(here, programs)}
    run = ["bash", "-c", script()]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def submit_in_place(here: Path) -> None:
    os.chdir(here)
    os.setsid()
    (here / "group").write_text(str(os.getpid()))
    sys.exit(run_in_place(new_submission(["conf=digits"], [], "mine", "submit", "slurm")))


def press_ctrl_c(here: Path) -> None:
    wait_until((here / "started").exists)
    os.killpg(int((here / "group").read_text()), signal.SIGINT)


def test_ctrl_c_in_place_waits_until_the_trials_have_saved_their_state(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**JOB, "PATH": path_with(here, {"srun": f"touch started\n{INTERRUPTED}"})}.items():
        monkeypatch.setenv(name, value)
    assert run_forked([functools.partial(submit_in_place, here), functools.partial(press_ctrl_c, here)]) == [130, 0]
    assert (here / "saved").exists()


def test_a_job_says_which_configs_have_changed_while_it_waited(here: Path) -> None:
    (folder := here / "my_conf").mkdir()
    for name in ("mine", "changed"):
        (folder / f"{name}.yaml").write_text("defaults: [digits, _self_]\n")
    texts = [
        batch_script(new_submission([f"conf={name}"], [folder], name, "submit", "slurm"))
        for name in ("mine", "changed")
    ]
    (folder / "changed.yaml").write_text("defaults: [digits, _self_]\nseed: 1\n")
    environment = {**JOB, "PATH": path_with(here, {"srun": 'echo 0 > "$status"'})}
    same, other = (
        subprocess.run(["bash", "-c", text], env=environment, capture_output=True, text=True, check=True).stdout
        for text in texts
    )
    assert "changed since" not in same
    assert f"changed since the sweep was submitted, which begins with what they say now: {folder}/changed.yaml" in other


def test_the_driver_gets_the_overrides_as_they_were_typed() -> None:
    odd = "train.lr=tag(log, interval(1e-4, 1e-2))"
    line = next(line for line in script(odd).splitlines() if line.startswith("arguments="))
    shown = f"{line}; printf '%s\\n' \"${{arguments[@]}}\""
    done = subprocess.run(["bash", "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        *("run", "conf=digits", odd, "cluster.address=auto", "--name=mine", "--resume", "--json"),
    ]


def test_a_container_has_the_working_folder_the_mounts_and_the_folders_of_configs_from_elsewhere(
    here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = script("cluster.slurm.container={runtime: pyxis, image: /a.sif, mounts: [/data]}")
    assert f"--container-image=/a.sif --container-mounts=/data:/data,{here}:{here}" in text
    assert "python=python3\n" in text
    elsewhere = tmp_path_factory.mktemp("my_conf")
    tokens = ["conf=digits", "cluster.slurm.container={runtime: apptainer, image: /a.sif, mounts: [/data]}"]
    monkeypatch.setenv("HOME", str(elsewhere.parent))
    text = batch_script(new_submission(tokens, [Path("~", elsewhere.name)], "mine", "submit", "slurm"))
    assert f"apptainer exec --bind /data,{here},{elsewhere} --pwd {here} /a.sif" in text


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
def test_mistakes_are_named_before_anything_is_submitted(tokens: list[str], words: list[str]) -> None:
    message = refusal("submit", "conf=digits", *tokens, "--to=slurm")
    assert all(word in message for word in words), message
    assert not Path("outputs").exists()


@pytest.mark.parametrize("greeting", ["", "-----\\n  Welcome to the cluster\\n-----\\n"])
def test_the_script_is_written_and_submitted_with_sbatch(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], greeting: str
) -> None:
    """Some clusters have an sbatch of their own, which greets first."""
    sbatch = f"printf %s \"$*\" > asked; printf %b '{greeting}42;a\\n'"
    monkeypatch.setenv("PATH", path_with(here, {"sbatch": sbatch}))
    assert run_command(["submit", "conf=digits", "--to=slurm", "--name=mine", "--json"])[0] == 0
    folder = here / "outputs" / ".submitted" / "mine"
    assert json.loads(capsys.readouterr().out) == {"sweep": "mine", "job": "42", "log": f"{folder}/slurm.log"}
    assert (here / "asked").read_text() == f"--parsable {folder}/job.sh"
    assert "#SBATCH --job-name=mine" in (folder / "job.sh").read_text()


def test_a_name_whose_job_waits_in_the_queue_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first job would make the sweep, and the second one continue it without its own config."""
    others = r"/\xe4/job.sh"  # its name is not UTF-8
    squeue = rf"printf %b '{others}\n{here}/outputs/.submitted/mine/job.sh\n'"
    monkeypatch.setenv("PATH", path_with(here, {"sbatch": "echo 42", "squeue": squeue}))
    submit = ["submit", "conf=digits", "train.lr=0.1", "--to=slurm"]
    refused = refusal(*submit, "--name=mine")
    assert "--name=mine: a job of this sweep is in Slurm's queue; choose another --name" in refused
    assert not Path("outputs/.submitted/mine").exists()
    assert run_command([*submit, "--name=other"])[0] == 0


def test_without_sbatch_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "login node" in refusal("submit", "conf=digits", "--to=slurm")


def test_a_print_submits_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["submit", "conf=digits", "--to=slurm", "--name=mine", "--print"])[0] == 0
    printed = capsys.readouterr().out
    assert printed.startswith("#!/bin/bash\n#SBATCH ")
    assert f"mkdir -p {Path.cwd()}/outputs/.submitted/mine" in printed, "Slurm ends a job whose log has no folder"
    assert not Path("outputs").exists()
