"""Schedules for other schedulers: their lines are valid there, and fire when the schedule does."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from datetime import datetime
from itertools import islice
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from test_kuberay import validators  # noqa: F401 - a fixture
from verbs import refusal

from sweeps.cli import run_command
from sweeps.config import UPLOADED_WITHIN_S
from sweeps.driver.signals import STOP_WITHIN_S
from sweeps.errors import UserError
from sweeps.folders.driver_lock import SILENCE_S
from sweeps.launch.calendar import calendar_events, plain_fields
from sweeps.runtime.worker_group import CLOSED_WITHIN_S
from sweeps.service.schedules.cron import CronLine

SCHEDULE = """# A test.
name: evening
cron: 30 20 * * mon-fri
timezone: Europe/Berlin
conf: digits
overrides: [search.num_trials=2]
"""
CLUSTER = (
    *("cluster=kuberay", "cluster.kuberay.image=sweeps:1", "output_dir=/shared/outputs"),
    *("tracking.uri=http://mlflow:5000", "cluster.kuberay.volumes=[{claim: shared, path: /shared}]"),
    "cluster.kuberay.queue=team",
)


@pytest.fixture
def my_conf(working_folder: Path) -> Path:
    folder = working_folder / "my_conf" / "schedule"
    folder.mkdir(parents=True)
    (folder / "evening.yaml").write_text(SCHEDULE)
    return folder.parent


def exported(
    capsys: pytest.CaptureFixture[str], kind: str, *options: str, config_dir: str = "my_conf"
) -> tuple[str, str]:
    status, _ = run_command(["schedule", "export", "evening", f"--as={kind}", f"--config-dir={config_dir}", *options])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out, captured.err


def change(my_conf: Path, **values: object) -> None:
    file = my_conf / "schedule" / "evening.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **values}))


@pytest.mark.parametrize("config_dir", ["my_conf", "~/my_conf"])
def test_a_crontab_has_a_line_that_a_shell_understands(
    my_conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, config_dir: str
) -> None:
    monkeypatch.setenv("HOME", str(my_conf.parent))
    change(my_conf, window={"hours": 2})
    out, err = exported(capsys, "cron", config_dir=config_dir)
    _, zone, line = out.splitlines()
    assert zone == "CRON_TZ=Europe/Berlin"
    fields, command = line.split(" ", 5)[:5], line.split(" ", 5)[5].replace("\\%", "%")
    assert fields == ["30", "20", "*", "*", "mon-fri"]
    subprocess.run(["bash", "-n", "-c", command], check=True)
    words = shlex.split(command)
    assert words[:2] == ["cd", str(my_conf.parent)]
    assert "timeout" in words
    assert words[words.index("run") : words.index("run") + 2] == ["run", "evening"]
    assert f"--config-dir={my_conf}" in words
    assert "missed=latest" in err
    assert "CRON_TZ holds for all later lines" in err


@pytest.mark.parametrize(
    ("conf", "overrides", "trials_end_within_s"),
    [
        ("digits", [], 0),
        ("digits", ["output_dir=s3://bucket/{due:%Y}"], UPLOADED_WITHIN_S),
        ("command", ["~task.checkpoints", "~task.options", "task.grace_s=3600"], 3600),
    ],
)
def test_a_sweep_whose_time_is_up_may_end_as_long_as_its_trials_and_uploads_take(
    my_conf: Path, capsys: pytest.CaptureFixture[str], conf: str, overrides: list[str], trials_end_within_s: float
) -> None:
    change(my_conf, window={"hours": 2}, conf=conf, overrides=overrides)
    out, _ = exported(capsys, "cron")
    killed_after = re.search(r"--kill-after=(\d+) ", out)
    stopped_within = re.search(r"TimeoutStopSec=(\d+)\n", exported(capsys, "systemd")[0])
    for found in (killed_after, stopped_within):
        assert found is not None
        assert CLOSED_WITHIN_S + STOP_WITHIN_S < int(found[1]) - trials_end_within_s < 150


LINES = ["30 20 * * mon-fri", "*/15 2-4 1,15 * *", "0 0 13 * 5", "@weekly", "5/20 * * jan,jul 0", "0 6 * 2-4 7"]
LINES += ["0 2 1 * 0-6", "0 2 * JUL MON,WED"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze: apt-get install systemd")
@pytest.mark.parametrize("cron", LINES)
def test_systemd_fires_when_the_schedule_does(cron: str) -> None:
    begin = datetime.fromisoformat("2027-01-01T00:00:00+00:00")
    ours = [round(due) for due in islice(CronLine(cron, "UTC").after(begin.timestamp()), 12)]
    found = set()
    for event in calendar_events(cron, "UTC"):
        command = ["systemd-analyze", "calendar", "--iterations=12", "--base-time=2027-01-01 00:00:00 UTC", event]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={"TZ": "UTC", "LC_ALL": "C"})
        for line in done.stdout.splitlines():
            label, _, shown = line.strip().partition(": ")
            if label == "Next elapse" or label.startswith("Iter. #"):
                found.add(round(datetime.strptime(shown[4:] + "+0000", "%Y-%m-%d %H:%M:%S UTC%z").timestamp()))
    assert sorted(found)[:12] == ours


def test_a_folder_that_cannot_be_made_is_a_mistake(my_conf: Path) -> None:
    export = ("schedule", "export", "evening", "--as=cron", "--config-dir=my_conf")
    assert "cannot be written" in refusal(*export, "--output=my_conf/schedule/evening.yaml")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze: apt-get install systemd")
def test_systemd_accepts_the_units(my_conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(my_conf, jitter_s=60, window={"hours": 2})
    exported(capsys, "systemd", "--output=units")
    units = sorted(str(path) for path in Path("units").iterdir())
    assert [Path(unit).name for unit in units] == ["sweeps-evening.service", "sweeps-evening.timer"]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert not [line for line in done.stderr.splitlines() if "sweeps-evening" in line], done.stderr
    assert "OnCalendar=Mon,Tue,Wed,Thu,Fri *-*-* 20:30:00 Europe/Berlin" in Path(units[1]).read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze: apt-get install systemd")
def test_systemd_reads_the_path_of_a_folder_as_it_is(my_conf: Path) -> None:
    folder = my_conf.rename(my_conf.with_name(r"it's $HOME a\tb %h"))
    options = ["--as=systemd", f"--config-dir={folder}", "--output=units"]
    assert run_command(["schedule", "export", "evening", *options]) == (0, None)
    command = ["systemd-analyze", "verify", "units/sweeps-evening.service"]
    environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "debug"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    (line,) = [each for each in (done.stdout + done.stderr).splitlines() if "Command Line: " in each]
    word = shlex.split(line.replace("\\$", "$"))[-1]
    assert word == f"--config-dir={folder}".replace("$", "$$"), "it replaces $HOME when it starts, and $$ by $"


def test_what_only_some_crons_know_is_refused() -> None:
    for line in ("0 0 L * *", "0 0 lw * *", "0 0 * * mon#1", "0 0 * * 5L", "0 0 * * 5l"):
        CronLine(line, "UTC")
        with pytest.raises(UserError, match="serve"):
            plain_fields(line)


def test_kubernetes_gets_a_cron_job_with_one_pod(my_conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(my_conf, overrides=[*CLUSTER], overlap="stop_old", window={"hours": 6})
    out, _ = exported(capsys, "kubernetes")
    config_map, job = yaml.safe_load_all(out)
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    assert job["spec"]["schedule"] == "30 20 * * mon-fri"
    assert (job["spec"]["timeZone"], job["spec"]["concurrencyPolicy"]) == ("Europe/Berlin", "Replace")
    template = job["spec"]["jobTemplate"]
    assert template["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert template["spec"]["activeDeadlineSeconds"] == 6 * 3600
    pod = template["spec"]["template"]["spec"]
    assert "/dev/shm" in [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]]
    assert pod["restartPolicy"] == "Never"
    assert pod["terminationGracePeriodSeconds"] >= 30
    assert pod["containers"][0]["command"] == ["bash", "/etc/sweeps/sweep.sh"]
    unpack, command = config_map["data"]["sweep.sh"].splitlines()
    assert "zipfile" in unpack
    assert "cluster.address=local" in command
    assert '--name="$JOB_NAME" --resume' in command
    given = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert int(given["SWEEPS_WAIT_FOR_DRIVER_S"]) >= pod["terminationGracePeriodSeconds"] + SILENCE_S, "it saves"
    assert int(given["SWEEPS_WAIT_FOR_MLFLOW_S"]) * (1 + template["spec"]["backoffLimit"]) == 3600
    assert "podFailurePolicy" not in template["spec"], "no pod would take the place of one on a lost node"


def test_a_program_in_a_pod_has_its_own_time_to_end(my_conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kubernetes gives 30 s."""
    program = ("~task.checkpoints", "~task.options", "task.grace_s=300")
    change(my_conf, conf="command", overrides=[*CLUSTER, *program])
    _, job = yaml.safe_load_all(exported(capsys, "kubernetes")[0])
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert 300 + STOP_WITHIN_S < pod["terminationGracePeriodSeconds"] < 450


def test_kuberay_gets_a_ray_cron_job(
    my_conf: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    validators: dict[str, Draft202012Validator],  # noqa: F811
) -> None:
    change(my_conf, overrides=[*CLUSTER], window={"hours": 6})
    my_conf.with_name("lib").symlink_to(my_conf, target_is_directory=True)
    out, err = exported(capsys, "kuberay")
    _, job = yaml.safe_load_all(out)
    assert "links to folders are not sent, not even if they hold code: lib" in caplog.messages
    assert "overlap=skip: every firing starts a sweep" in err
    assert "missed=latest: all missed firings" in err
    assert job["spec"]["jobTemplate"]["activeDeadlineSeconds"] == 6 * 3600
    assert json.dumps([each.message for each in validators["RayCronJob"].iter_errors(job)]) == "[]"
    assert job["spec"]["timeZone"] == "Europe/Berlin"
    change(my_conf, overrides=["data.path='x-{due:%Y}'"], conf="llm_lora", enabled=False)
    assert "{due:...}" in refusal("schedule", "export", "evening", "--as=kuberay", "--config-dir=my_conf")
