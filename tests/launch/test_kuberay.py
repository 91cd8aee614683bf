"""Manifests for KubeRay: valid by its published schema, with the command, the code and the resources of the sweep."""

from __future__ import annotations

import base64
import io
import json
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from ray._private.runtime_env.packaging import unzip_package
from verbs import refusal

from sweeps.cli import run_command
from sweeps.errors import UserError
from sweeps.folders.sweep_folder import COPY_FILE
from sweeps.launch.bundle import Bundle
from sweeps.launch.kuberay import kubernetes_name, manifests, written
from sweeps.launch.submission import Submission, new_submission

SCHEMAS = Path(__file__).with_name("kuberay_schemas.json.xz")
"""Schemas of KubeRay 1.7.0; where they are from is in the file itself, under ``source``."""
IMAGE = "cluster.kuberay.image=registry/sweeps:1"
SHARED = (
    "output_dir=/shared/outputs",
    "tracking.uri=http://mlflow:5000",
    "cluster.kuberay.volumes=[{claim: shared, path: /shared}]",
)
BASE = ("conf=digits", "cluster=kuberay", IMAGE, *SHARED)


def submission(*tokens: str, name: str | None = "mine", config_dirs: Sequence[Path] = ()) -> Submission:
    return new_submission([*BASE, *tokens], config_dirs, name, "submit", "kuberay")


@pytest.fixture(scope="module")
def validators() -> dict[str, Draft202012Validator]:
    document = closed(json.loads(lzma.decompress(SCHEMAS.read_bytes())))
    return {kind: Draft202012Validator({**document, "$ref": f"#/schemas/{kind}"}) for kind in document["schemas"]}


def closed(schema: Any) -> Any:
    """The schema without room for keys that it does not name, which kubectl refuses, too."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    is_open = "additionalProperties" in inner or "x-kubernetes-preserve-unknown-fields" in inner
    if inner.get("type") == "object" and isinstance(inner.get("properties"), dict) and not is_open:
        inner["additionalProperties"] = False
    return inner


@pytest.fixture(autouse=True)
def here(working_folder: Path) -> Path:
    return working_folder


def test_a_sweep_becomes_a_ray_job_that_kuberays_schema_accepts(
    here: Path, validators: dict[str, Draft202012Validator]
) -> None:
    (here / "mine.py").write_text("x = 1\n")
    documents = manifests(
        submission(
            "cluster.kuberay.secrets=[mlflow]",
            "cluster.kuberay.image_pull_secrets=[registry]",
            "cluster.kuberay.service_account=sweeps",
            "cluster.kuberay.queue=team",
            "cluster.kuberay.time_limit_hours=12",
            "cluster.kuberay.workers={cpus: 8, memory_gib: 32, gpus: 1, node_selector: {kind: l4}}",
        )
    )
    config_map, job = yaml.safe_load_all(written(documents))
    assert [each.message for each in validators["RayJob"].iter_errors(job)] == []
    assert config_map["metadata"]["name"] == job["metadata"]["name"] == "mine"
    (head,) = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert {each["name"] for each in head["env"]} == {"SWEEPS_WAIT_FOR_DRIVER_S", "SWEEPS_WAIT_FOR_MLFLOW_S"}
    workers = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    assert workers["replicas"] == 2
    pod = workers["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"}
    assert pod["nodeSelector"] == {"kind": "l4"}
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "mlflow"}}]
    submitter = job["spec"]["submitterPodTemplate"]["spec"]
    assert pod["imagePullSecrets"] == submitter["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["serviceAccountName"] == submitter["serviceAccountName"] == "sweeps"
    assert submitter["containers"][0]["image"] == pod["containers"][0]["image"]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert job["spec"]["activeDeadlineSeconds"] == 12 * 3600
    assert job["spec"]["shutdownAfterJobFinishes"]
    assert job["spec"].get("ttlSecondsAfterFinished", 0) == 0, "KubeRay keeps the pods, and their GPUs, for so long"


def test_a_schedule_becomes_a_ray_cron_job_whose_attempts_share_a_name(
    validators: dict[str, Draft202012Validator],
) -> None:
    config_map, job = manifests(submission(name="nightly"), cron="0 2 * * *", timezone="Europe/Berlin")
    assert [each.message for each in validators["RayCronJob"].iter_errors(job)] == []
    assert (job["spec"]["schedule"], job["spec"]["timeZone"]) == ("0 2 * * *", "Europe/Berlin")
    (line,) = config_map["data"]["sweep.sh"].splitlines()
    printed = shell(line.replace("exec python", "printf '%s\\n' python"), RAY_CLUSTER_NAME="nightly-x7k2f-9qwzp")
    assert "--name=nightly-x7k2f" in printed


def test_the_schema_refuses_what_kuberay_would(validators: dict[str, Draft202012Validator]) -> None:
    job = manifests(submission())[-1]
    for change in (
        {"entrypoint": 1},
        {"backoffLimit": "three"},
        {"entryPoint": "python"},
        {"rayClusterSpec": {"headGroupSpec": {"template": {"spec": {}}}}},
    ):
        assert list(validators["RayJob"].iter_errors({**job, "spec": {**job["spec"], **change}})), change


def shell(line: str, **environment: str) -> list[str]:
    done = subprocess.run(
        ["bash", "-c", line], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_the_driver_gets_the_overrides_as_they_were_typed() -> None:
    odd = ("train.lr=tag(log, interval(1e-4, 1e-2))", "search.points=[{train.lr: 0.001}]")
    config_map, job = manifests(submission(*odd))
    assert shlex.split(job["spec"]["entrypoint"]) == ["bash", "/etc/sweeps/sweep.sh"]  # safe in any number of shells
    (line,) = config_map["data"]["sweep.sh"].splitlines()
    got = shell(line.replace("exec python", "printf '%s\\n' python"))
    assert got[:4] == ["python", "-m", "sweeps", "run"]
    assert set(odd) < set(got)
    assert got[-4:] == ["cluster.address=auto", "--name=mine", "--resume", "--json"]


def test_modules_and_configs_travel_and_what_is_no_code_does_not(here: Path, tmp_path_factory: Any) -> None:
    files = {"mine.py": "x = 1\n", "my_conf/data/a.yaml": "a: 1\n", "mlflow.db": "no", ".venv/x.py": "no"}
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("model/own", "model/other", "cert-manager/secret"):
        (elsewhere / name).parent.mkdir(exist_ok=True)
        (elsewhere / f"{name}.yaml").write_text("defaults: [conv_net]\n")
    for name, text in files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    (unused := here.parent / "unused").mkdir()
    config_map, _ = manifests(submission("model=own", config_dirs=[here / "my_conf", elsewhere, unused]))
    archive = zipfile.ZipFile(io.BytesIO(base64.b64decode(config_map["binaryData"]["code.zip"])))
    assert set(archive.namelist()) == {
        *("SUBMITTED.txt", "mine.py", "my_conf/data/a.yaml"),
        *("submitted_configs/1/model/own.yaml", "submitted_configs/1/model/other.yaml"),  # which a `when` may name
    }
    command = config_map["data"]["sweep.sh"]
    assert "--config-dir=my_conf" in command
    assert "--config-dir=submitted_configs/1" in command
    assert str(unused) not in command
    assert "submitted_configs/2" not in command


@pytest.mark.parametrize(
    ("conf", "config_dirs"),
    [
        ("../configs/own.yaml", []),
        ("~/configs/own.yaml", []),
        (".hidden/own.yaml", []),
        ("ignored/own.yaml", []),
        ("seen/local.yaml", []),
        ("../configs/local.yaml", []),
        ("own", ["../configs"]),
        ("own", ["~/configs"]),
        ("own", [".hidden"]),
        ("own", ["ignored"]),
        ("local", ["seen"]),
    ],
)
def test_a_config_travels_that_is_elsewhere_or_ignored_by_git(
    here: Path, monkeypatch: pytest.MonkeyPatch, conf: str, config_dirs: list[str]
) -> None:
    monkeypatch.setenv("HOME", str(here.parent / "home"))
    subprocess.run(["git", "init", "-q"], cwd=here, check=True)
    (here / ".gitignore").write_text("ignored\nlocal.yaml\n")
    (here / "more").mkdir()
    for folder in ("../configs", "../home/configs", ".hidden", "ignored", "seen"):
        (here / folder / "model").mkdir(parents=True)
        (here / folder / "model/local.yaml").write_text("defaults: [conv_net]\n")
        (here / folder / "unread.yaml").write_text("password: x\n")
        for name, more in {"own": "hydra: {searchpath: [file://more]}\n", "local": ""}.items():
            (here / folder / f"{name}.yaml").write_text(f"defaults: [digits, override model: local, _self_]\n{more}")
    made = new_submission(
        [f"conf={conf}", *BASE[1:]], [Path(each) for each in config_dirs], "mine", "submit", "kuberay"
    )
    given = dict(each.split("=", 1) for each in made.arguments if each.startswith(("conf=", "--config-dir=")))
    file = Path(f"{given['--config-dir']}/{given['conf']}.yaml" if config_dirs else given["conf"])
    assert {str(file), str(file.parent / "model/local.yaml")} <= made.bundle.files.keys()
    assert (str(file.parent / "unread.yaml") in made.bundle.files) is (file.parent.name == "seen")


CODE = "code/sweep.json"
"""A file of the project that is called like one of a sweep's folder."""


@pytest.mark.parametrize("output_dir", ["..", "."])
def test_the_folder_of_a_project_in_output_dir_travels_without_the_sweeps_there(here: Path, output_dir: str) -> None:
    sweep = f"{output_dir}/first"
    for name in ("mine.py", f"{sweep}/sweep.json", f"{sweep}/{COPY_FILE}", f"{sweep}/trials/0000/model.bin", CODE):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("x = 1\n")
    assert set(Bundle.of_folder(here, leave_out=(here / output_dir).resolve()).files) == {"mine.py", CODE}


def test_code_that_is_one_package_keeps_its_folder_and_its_programs_and_conda_environments_stay_here(
    here: Path,
) -> None:
    for name in ("mine/train.sh", "mine/training.py", "env/conda-meta/history", "env/lib/x.py"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("#!/bin/sh\n")
    (here / "mine/train.sh").chmod(0o755)
    bundle = Bundle.of_folder(here, leave_out=here / "outputs")
    assert set(bundle.files) == {"mine/train.sh", "mine/training.py"}
    archive = bundle.write(here / "code.zip", 2**20, "")
    # As Ray unpacks a working_dir from an address: a single folder at the top would be left out.
    unzip_package(str(archive), str(here / "out"), remove_top_level_directory=True, unlink_zip=False)
    assert os.access(here / "out/mine/train.sh", os.X_OK)
    assert not os.access(here / "out/mine/training.py", os.X_OK)


def test_the_code_of_a_submodule_travels(here: Path) -> None:
    module = here / "library"
    module.mkdir()
    (module / "layers.py").write_text("x = 1\n")
    as_somebody = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org"]
    for command in (["init", "-q"], ["add", "layers.py"], ["commit", "-qm", "first"]):
        subprocess.run([*as_somebody, *command], cwd=module, check=True)
    for command in (["init", "-q"], ["add", "library"]):  # as a link to the other repository
        subprocess.run([*as_somebody, *command], cwd=here, check=True, capture_output=True)
    assert set(Bundle.of_folder(here, leave_out=here / "outputs").files) == {"library/layers.py"}
    (module / "layers.py").unlink()
    shutil.rmtree(module / ".git")  # as after a clone without --recurse-submodules
    assert set(Bundle.of_folder(here, leave_out=here / "outputs").files) == set()


def test_nothing_travels_that_git_may_ignore_if_it_does_not_trust_the_repository(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=here, check=True)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(UserError, match=r"(?s)dubious ownership.*git config --global --add safe\.directory"):
        submission()


def test_a_copied_worktree_without_its_repository_is_refused_with_what_to_do(here: Path) -> None:
    (here / ".git").write_text("gitdir: /nowhere/.git/worktrees/mine\n")
    with pytest.raises(UserError, match=rf"remove {here}/\.git to send all files\): fatal: not a git repository"):
        submission()


def test_earlier_sweeps_stay_here_and_links_to_folders_are_told(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in (
        "outputs/first/sweep.json",
        "outputs/prepared.csv",
        "mine/outputs/first/sweep.py",
        "../common/lib/code.py",
    ):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("{}")
    (here / "lib").symlink_to(here.parent / "common/lib")
    for _ in ("a plain folder", "a repository"):
        assert set(submission().bundle.files) - {".gitignore"} == {
            "outputs/prepared.csv",
            "mine/outputs/first/sweep.py",
        }
        assert run_command(["submit", *BASE, "--to=kuberay", "--name=mine", "--print"])[0] == 0
        assert caplog.messages == ["links to folders are not sent, not even if they hold code: lib"]
        caplog.clear()
        subprocess.run(["git", "init", "-q"], cwd=here, check=True)


def test_a_large_file_is_not_read_into_memory_and_one_that_cannot_be_read_is_named(here: Path) -> None:
    with (here / "large.bin").open("wb") as file:
        file.truncate(64 * 2**20)
    (here / "mine.py").write_text("x = 1\n")
    bundle = Bundle.of_folder(here, leave_out=here / "outputs")
    tracemalloc.start()
    with pytest.raises(UserError, match=r"large\.bin \(64\.0 MiB\).*\.gitignore.*`git init` makes one"):
        bundle.write(here / "code.zip", 1000, "")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20
    (here / "mine.py").unlink()
    with pytest.raises(UserError, match=r"mine\.py: cannot be packed \(No such file or directory\)"):
        bundle.write(here / "code.zip", 2**20, "")


@pytest.mark.parametrize("in_git", [True, False])
def test_a_file_whose_name_is_not_utf_8_is_named(here: Path, *, in_git: bool) -> None:
    if in_git:
        subprocess.run(["git", "init", "-q"], cwd=here, check=True)
    Path(os.fsdecode(os.fsencode(here) + b"/gr\xf6\xdfe.txt")).write_text("x")
    with pytest.raises(UserError, match=r"gr\\xf6\\xdfe\.txt': the file's name is not UTF-8"):
        submission()


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["conf=digits"], ["cluster.kuberay", "cluster=kuberay"]),
        (["conf=digits", "cluster=kuberay"], ["cluster.kuberay.image"]),
        (
            ["conf=digits", "cluster=kuberay", IMAGE],
            [
                "MLflow server, or a file below a path of cluster.kuberay.volumes",
                "absolute path of a folder below a path",
            ],
        ),
        ([*BASE, "output_dir=/elsewhere"], ["output_dir=/elsewhere", "/shared"]),
        ([*BASE, "tracking.uri=http://localhost:5000"], ["tracking.uri=http://localhost:5000", "in a pod"]),
        ([*BASE, "cluster.kuberay.volumes=[]"], ["output_dir=/shared/outputs", "cluster.kuberay.volumes"]),
        ([*BASE, "scaling.num_workers=8"], ["scaling.num_workers=8", "cluster.kuberay.workers"]),
        ([*BASE, "scaling.use_gpu=true"], ["GPU", "cluster.kuberay.workers"]),
        ([*BASE, "cluster.kuberay.namespace=My_Space"], ["cluster.kuberay.namespace"]),
        ([*BASE, "cluster.kuberay.workers.gpu=3"], ["gpu"]),
    ],
)
def test_mistakes_are_named_before_anything_is_applied(
    tokens: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["submit", *tokens, "--to=kuberay", "--print"])[0] == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert all(word in captured.err for word in words), captured.err


def test_a_password_comes_from_a_secret_and_is_in_no_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:pa55word@mlflow:5000")
    tokens = [token for token in BASE if not token.startswith("tracking.uri=")]
    with pytest.raises(UserError, match=r"cluster\.kuberay\.secrets"):
        manifests(new_submission(tokens, [], "mine", "submit", "kuberay"))
    tokens.append("cluster.kuberay.secrets=[mlflow]")
    assert "pa55word" not in written(manifests(new_submission(tokens, [], "mine", "submit", "kuberay")))
    monkeypatch.setenv(
        "MLFLOW_TRACKING_URI", "http://me:pa55word@localhost:5000"
    )  # the secret has another, which counts
    assert "pa55word" not in written(manifests(new_submission(tokens, [], "mine", "submit", "kuberay")))


def test_code_that_a_config_map_cannot_hold_is_refused_with_its_largest_file(here: Path) -> None:
    (here / "big.bin").write_bytes(os.urandom(2 * 2**20))
    with pytest.raises(UserError, match=r"big\.bin.*cluster\.kuberay\.code=image"):
        manifests(submission())
    config_map, job = manifests(submission("cluster.kuberay.code=image"))
    assert "binaryData" not in config_map
    assert "runtimeEnvYAML" not in job["spec"]


def test_names_are_made_valid_and_stay_different() -> None:
    assert kubernetes_name("My_first.sweep", 47) == "my-first-sweep"
    assert kubernetes_name("7-up", 47) == "sweep-7-up"
    assert len({kubernetes_name(each, 47) for each in ("größe", "grüße", "模型", "数据")}) == 4
    assert re.fullmatch(r"sweep-[0-9a-f]{6}", kubernetes_name("模型", 47))
    long = [kubernetes_name("a" * 60 + end, 36) for end in "xy"]
    assert len(set(long)) == 2
    assert all(len(each) <= 36 for each in long)


KUBECTL = """
import sys, yaml
from pathlib import Path
assert sys.argv[1] in ("create", "delete"), "apply holds 256 KiB and does nothing for a RayJob that exists"
for each in yaml.safe_load_all(sys.stdin):
    name = f"{each['kind'].lower()} {each['metadata']['name']}"
    if sys.argv[1] == "delete":
        Path(name).unlink()
        continue
    if Path(name).exists():
        sys.exit(f'Error from server (AlreadyExists): {name} already exists')
    Path(name).write_text("")
"""


@pytest.fixture
def kubectl(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of objects of a cluster that has none yet."""
    program = here / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{KUBECTL}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return here


def test_a_config_map_and_a_job_are_created_with_kubectl(kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["submit", *BASE, "--to=kuberay", "--name=mine", "--json"])[0] == 0
    assert json.loads(capsys.readouterr().out) == {"sweep": "mine", "job": "mine", "namespace": "default"}
    assert {each.name for each in kubectl.glob("* mine")} == {"configmap mine", "rayjob mine"}


def test_a_job_of_another_sweep_with_the_same_name_is_left_alone_and_what_is_refused_leaves_nothing(
    kubectl: Path,
) -> None:
    config_map, job = kubectl / "configmap mine", kubectl / "rayjob mine"
    for there, missing in ((config_map, job), (job, config_map)):
        there.write_text("another's")
        assert "--name" in refusal("submit", *BASE, "--to=kuberay", "--name=mine")
        assert not missing.exists(), "nothing is in the way of the next try"
        there.unlink()


def test_a_sweep_that_continues_is_a_job_of_its_own() -> None:
    first = submission()
    again = replace(first, arguments=["resume", "mine", "--json"])
    names = {manifests(each)[-1]["metadata"]["name"] for each in (first, again)}
    assert len(names) == 2, "KubeRay starts no RayJob twice"


def test_without_kubectl_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "--print" in refusal("submit", *BASE, "--to=kuberay")
