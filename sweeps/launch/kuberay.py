"""Manifests for KubeRay: a RayJob that runs a sweep, a RayCronJob that runs one on a schedule, and their ConfigMap."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sweeps.config.launch import KubeRay, Pod
from sweeps.errors import UserError
from sweeps.folders import driver_lock
from sweeps.launch.submission import JOIN, Submission, check_reachable, killed_after_s
from sweeps.texts.uri_passwords import holds_password
from sweeps.tracking import client

API = "ray.io/v1"
FOLDER = "/etc/sweeps"
"""Folder of the pods at which the ConfigMap is mounted."""
SCRIPT = "sweep.sh"
"""Key of the ConfigMap with the command of the driver. KubeRay passes an entrypoint through two shells, which would
interpret the quotes and parentheses of overrides; this file's name is safe in both."""
ARCHIVE = "code.zip"
"""Key of the ConfigMap with the files of the working folder."""
MAX_CONFIG_MAP = 2**20
LONGEST_JOB, LONGEST_SCHEDULE, LONGEST_CRON_JOB = 47, 36, 52
"""Maximum characters of the names of a RayJob, a RayCronJob and a CronJob, to which the names of their parts are
appended."""
UNPACK = f'cd "$(mktemp -d)" && python -m zipfile -e {FOLDER}/{ARCHIVE} .\n'
"""Line of a script that unpacks the archive and enters it as the working folder; for a RayJob, Ray does this."""
NAME_OF_FIRING = "${RAY_CLUSTER_NAME%-*}"
"""Name of the sweep of a schedule's firing, for a shell: that of the RayJob, which all attempts share. KubeRay sets the
variable in its pods; the name of a cluster is that of its RayJob followed by five random characters."""
MARGIN_S = 60
"""Seconds after the end of a killed pod until a driver that waits for it has noticed."""
MLFLOW_WITHIN_S = 900
"""Seconds that each attempt of a job waits for MLflow."""
OF_SUBMITTER = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
"""Resources of the pod that submits the driver to the pods, as KubeRay's own."""
LABELS = {"app.kubernetes.io/managed-by": "sweeps"}

Manifest = dict[str, Any]


def manifests(
    submission: Submission, *, cron: str | None = None, timezone: str = "UTC", hours: float | None = None
) -> list[Manifest]:
    """Return the manifests that run a sweep, in the order in which to create them: to run it at once or, with ``cron``,
    at the times of a cron line. Each such run ends after ``hours``, if given, or by the config's limit.

    Raises:
        UserError: The config has no section ``cluster.kuberay``, a trial does not fit on the pods, the pods cannot
            reach the sweep's stores, or the working folder is too large.
    """
    kuberay = _section(submission)
    name = kubernetes_name(submission.job_name, LONGEST_JOB if cron is None else LONGEST_SCHEDULE)
    config_map = _config_map(submission, kuberay, name, own_name=None if cron is None else NAME_OF_FIRING)
    job = _job(kuberay, name, _patience(submission)) | _deadline(kuberay, hours)
    if ARCHIVE in config_map.get("binaryData", {}):
        job["runtimeEnvYAML"] = f"working_dir: file://{FOLDER}/{ARCHIVE}\n"
    metadata = {"name": name, "namespace": kuberay.namespace, "labels": _labels(kuberay)}
    if cron is None:
        return [config_map, {"apiVersion": API, "kind": "RayJob", "metadata": metadata, "spec": job}]
    spec = {"schedule": cron, "timeZone": timezone, "jobTemplate": job}
    return [config_map, {"apiVersion": API, "kind": "RayCronJob", "metadata": metadata, "spec": spec}]


def cron_job(
    submission: Submission, cron: str, timezone: str, *, replaces: bool, hours: float | None = None
) -> list[Manifest]:
    """Return the manifests of a CronJob of plain Kubernetes: one pod, with the resources of a worker, runs the sweep.
    While it runs, another firing replaces it, or is skipped.

    Raises:
        UserError: As for ``manifests``.
    """
    kuberay = _section(submission, nodes=1)
    name = kubernetes_name(submission.name, LONGEST_CRON_JOB)
    config_map = _config_map(submission, kuberay, name, own_name="$JOB_NAME", prefix=UNPACK)
    script = config_map["data"][SCRIPT].replace(JOIN, "cluster.address=local")
    config_map["data"][SCRIPT] = script if "binaryData" in config_map else script.removeprefix(UNPACK)
    label = {"fieldPath": "metadata.labels['job-name']"}
    own_name = {"name": "JOB_NAME", "valueFrom": {"fieldRef": label}}
    pod = _template(kuberay, kuberay.workers, name, "sweep", [own_name, *_patience(submission)])
    pod["spec"]["restartPolicy"] = "Never"
    pod["spec"]["terminationGracePeriodSeconds"] = killed_after_s(submission.config)
    (container,) = pod["spec"]["containers"]
    # Kubernetes gives 64 MiB, which Ray, data loaders and NCCL exceed; KubeRay does this for its own pods.
    pod["spec"]["volumes"].append({"name": "shared-memory", "emptyDir": {"medium": "Memory"}})
    container["volumeMounts"].append({"name": "shared-memory", "mountPath": "/dev/shm"})  # noqa: S108
    container["command"] = ["bash", f"{FOLDER}/{SCRIPT}"]
    job: Manifest = {"backoffLimit": kuberay.max_failures, "ttlSecondsAfterFinished": kuberay.keep_s}
    job |= _deadline(kuberay, hours)
    spec = {
        "schedule": cron,
        "timeZone": timezone,
        "concurrencyPolicy": "Replace" if replaces else "Forbid",
        "jobTemplate": {"metadata": {"labels": _labels(kuberay)}, "spec": job | {"template": pod}},
    }
    metadata = {"name": name, "namespace": kuberay.namespace, "labels": LABELS}
    return [config_map, {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}]


def written(documents: list[Manifest]) -> str:
    """Return manifests as the YAML that kubectl reads."""
    import yaml

    class Plain(yaml.SafeDumper):
        """YAML writer that writes multi-line strings as blocks and repeats equal parts instead of using anchors."""

        def ignore_aliases(self, _: Any) -> bool:
            return True

    def block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Plain.add_representer(str, block)
    return "---\n".join(yaml.dump(each, Dumper=Plain, sort_keys=False, width=4096) for each in documents)


def create(documents: list[Manifest]) -> str:
    """Create the objects of manifests with kubectl, one after another, and return its answers.

    ``kubectl apply`` would change the ConfigMap of another sweep's job of the same name and leave a RayJob that exists
    as it is, also one that has ended; and it keeps a copy of each object in an annotation, which holds 256 KiB.

    Raises:
        UserError: There is no kubectl here, or it refused a manifest; the objects created before are deleted.
    """
    answers: list[str] = []
    for number, document in enumerate(documents):
        done = _kubectl("create", [document])
        if done.returncode:
            if number:  # otherwise the next try would find that they exist
                _kubectl("delete", documents[:number])
            reason = done.stderr.strip() or done.stdout.strip()
            fix = "; choose another --name, or delete what is there" if "AlreadyExists" in reason else ""
            raise UserError(f"kubectl create: {reason}{fix}")
        answers.append(done.stdout.strip())
    return "\n".join(answers)


def _kubectl(verb: str, documents: list[Manifest]) -> subprocess.CompletedProcess[str]:
    command = ["kubectl", verb, "--filename", "-"]
    try:
        return subprocess.run(command, input=written(documents), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError(
            "there is no kubectl on this machine; write the manifests with --print, and use them elsewhere: "
            "kubectl create -f FILE"
        ) from None


def kubernetes_name(name: str, longest: int) -> str:
    """Return a sweep's name in the characters that Kubernetes allows, with a digest if it had to be shortened or
    has other letters."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    plain = plain if plain[:1].isalpha() else f"sweep-{plain}"
    if len(plain) <= longest and name.isascii():
        return plain
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    return f"{plain[: longest - 7].rstrip('-')}-{digest}"


def _section(submission: Submission, nodes: int | None = None) -> KubeRay:
    """Check the section of the config, and return it."""
    kuberay = submission.config.cluster.kuberay
    if kuberay is None:
        raise UserError(
            "cluster.kuberay: is missing; it names the image to run: choose cluster=kuberay and "
            "cluster.kuberay.image=IMAGE, with the same Python, Ray and Sweeps as here"
        )
    workers = kuberay.workers
    submission.check_fit("cluster.kuberay.workers", nodes or kuberay.nodes, workers.cpus, workers.gpus)
    check_reachable(submission.config, [volume.path for volume in kuberay.volumes], submission.arguments)
    if holds_password(submission.config.tracking.uri) and not kuberay.secrets:
        raise UserError(
            "tracking.uri: its password would be readable in the manifest; put the address into a secret as "
            "MLFLOW_TRACKING_URI, and name the secret in cluster.kuberay.secrets"
        )
    return kuberay


def _config_map(
    submission: Submission, kuberay: KubeRay, name: str, *, own_name: str | None = None, prefix: str = ""
) -> Manifest:
    """Return the ConfigMap of a job, whose script runs the commands of the prefix before the driver. In a schedule, the
    sweep of each firing has its own name, written for a shell."""
    command = submission.command()
    if own_name is not None:
        command = command.replace(f"--name={submission.name}", f'--name="{own_name}"')
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": kuberay.namespace, "labels": LABELS},
        "data": {SCRIPT: f"{prefix}exec {command}\n"},
    }
    if kuberay.code == "config_map" and submission.bundle.files:
        with TemporaryDirectory() as folder:
            limit = MAX_CONFIG_MAP - len(command) - 1024
            advice = ", or build your code into the image (cluster.kuberay.code=image)"
            archive = submission.bundle.write(Path(folder, ARCHIVE), limit, advice).read_bytes()
        document["binaryData"] = {ARCHIVE: base64.b64encode(archive).decode("ascii")}
    return document


def _job(kuberay: KubeRay, name: str, of_driver: list[Manifest]) -> Manifest:
    """Return a RayJob's specification; ``of_driver`` are the environment variables of its driver."""
    job: Manifest = {
        "entrypoint": f"bash {FOLDER}/{SCRIPT}",
        "submissionMode": "K8sJobMode",
        "backoffLimit": kuberay.max_failures,
        "shutdownAfterJobFinishes": True,  # at once: a time to live would keep the pods and their GPUs
        "rayClusterSpec": {
            "rayVersion": version("ray"),
            "authOptions": {"mode": "token"},
            "headGroupSpec": {
                # No trial runs beside the driver.
                "rayStartParams": {"num-cpus": "0", "num-gpus": "0", "dashboard-host": "0.0.0.0"},  # noqa: S104
                "template": _template(kuberay, kuberay.head, name, "ray-head", of_driver),
            },
            "workerGroupSpecs": [
                {
                    "groupName": "workers",
                    "replicas": kuberay.nodes,
                    "minReplicas": kuberay.nodes,
                    "maxReplicas": kuberay.nodes,
                    "rayStartParams": {},
                    "template": _template(kuberay, kuberay.workers, name, "ray-worker"),
                }
            ],
        },
    }
    if access := _access(kuberay):  # which KubeRay does not give to its own pod, with the same image
        submitter = {"name": "ray-job-submitter", "image": kuberay.image, "resources": OF_SUBMITTER}
        job["submitterPodTemplate"] = {"spec": {"restartPolicy": "Never", "containers": [submitter], **access}}
    return job


def _patience(submission: Submission) -> list[Manifest]:
    """Return environment variables with which the driver of a new pod waits for the old pod's driver to end, and for
    MLflow, instead of using up the attempts of the job."""
    seconds = {driver_lock.PATIENCE: killed_after_s(submission.config) + MARGIN_S, client.PATIENCE: MLFLOW_WITHIN_S}
    return [{"name": name, "value": str(value)} for name, value in seconds.items()]


def _labels(kuberay: KubeRay) -> dict[str, str]:
    return LABELS | ({} if kuberay.queue is None else {"kueue.x-k8s.io/queue-name": kuberay.queue})


def _deadline(kuberay: KubeRay, hours: float | None) -> Manifest:
    limits = [each for each in (kuberay.time_limit_hours, hours) if each is not None]
    return {"activeDeadlineSeconds": int(min(limits) * 3600)} if limits else {}


def _access(kuberay: KubeRay) -> Manifest:
    """Return the fields of a pod with which it may pull the image."""
    access: Manifest = {}
    if kuberay.image_pull_secrets:
        access["imagePullSecrets"] = [{"name": each} for each in kuberay.image_pull_secrets]
    if kuberay.service_account is not None:
        access["serviceAccountName"] = kuberay.service_account
    return access


def _template(kuberay: KubeRay, pod: Pod, name: str, container: str, environment: Sequence[Manifest] = ()) -> Manifest:
    resources = {"cpu": str(pod.cpus), "memory": f"{pod.memory_gib}Gi"}
    if pod.gpus:
        resources["nvidia.com/gpu"] = str(pod.gpus)
    volumes: list[Mapping[str, Any]] = [{"name": "sweep", "configMap": {"name": name}}]
    mounts: list[Mapping[str, Any]] = [{"name": "sweep", "mountPath": FOLDER, "readOnly": True}]
    for index, volume in enumerate(kuberay.volumes):
        volumes.append({"name": f"volume-{index}", "persistentVolumeClaim": {"claimName": volume.claim}})
        mounts.append({"name": f"volume-{index}", "mountPath": volume.path})
    inside: Manifest = {
        "name": container,
        "image": kuberay.image,
        "resources": {"requests": resources, "limits": resources},
        "volumeMounts": mounts,
    }
    if kuberay.secrets:
        inside["envFrom"] = [{"secretRef": {"name": each}} for each in kuberay.secrets]
    if environment:
        inside["env"] = list(environment)
    spec: Manifest = {"containers": [inside], "volumes": volumes, **_access(kuberay)}
    if pod.node_selector:
        spec["nodeSelector"] = dict(pod.node_selector)
    return {"spec": spec}
