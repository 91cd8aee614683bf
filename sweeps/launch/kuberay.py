"""Manifests for KubeRay: a RayJob that runs a sweep, a RayCronJob that runs one on a schedule, and their ConfigMap."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sweeps.config.launch import KubeRay, Pod
from sweeps.errors import UserError
from sweeps.launch.submission import Submission, check_reachable
from sweeps.redact import holds_password

API = "ray.io/v1"
FOLDER = "/etc/sweeps"
"""Folder of the pods in which the ConfigMap is."""
SCRIPT = "sweep.sh"
"""Key of the ConfigMap with the command of the driver. KubeRay passes an entrypoint through two shells, which would
read the quotes and parentheses of overrides; this file's name is safe in both."""
ARCHIVE = "code.zip"
"""Key of the ConfigMap with the files of the working folder."""
MAX_CONFIG_MAP = 2**20
LONGEST_JOB, LONGEST_SCHEDULE = 47, 36
"""Maximum characters of the name of a RayJob and of a RayCronJob, which KubeRay appends to."""
NAME_OF_FIRING = "${RAY_CLUSTER_NAME%-*}"
"""Name of the sweep of a schedule's firing, for a shell: that of its RayJob, which all its attempts share. KubeRay sets
the variable in its pods; the name of a cluster is that of its RayJob and five random characters."""
LABELS = {"app.kubernetes.io/managed-by": "sweeps"}

Manifest = dict[str, Any]


def manifests(submission: Submission, *, cron: str | None = None, timezone: str = "UTC") -> list[Manifest]:
    """Return the manifests that run a sweep, in the order in which they are applied.

    Args:
        submission: The sweep.
        cron: Cron line of a schedule; default: the sweep runs once, at once.
        timezone: Time zone of the cron line.

    Raises:
        UserError: The config has no section ``cluster.kuberay``, a trial does not fit on the pods, the pods cannot
            reach the sweep's stores, or the working folder is too large.
    """
    kuberay = submission.config.cluster.kuberay
    if kuberay is None:
        raise UserError(
            "cluster.kuberay: is missing, which says which image to run; choose cluster=kuberay and "
            "cluster.kuberay.image=IMAGE, with the same Python, Ray and Sweeps as here"
        )
    workers = kuberay.workers
    submission.check_fit("cluster.kuberay.workers", kuberay.nodes, workers.cpus, workers.gpus)
    check_reachable(submission.config, [volume.path for volume in kuberay.volumes])
    _check_password(submission, kuberay)
    name = kubernetes_name(submission.name, LONGEST_JOB if cron is None else LONGEST_SCHEDULE)
    config_map = _config_map(submission, kuberay, name, is_schedule=cron is not None)
    job = _job(kuberay, name)
    if ARCHIVE in config_map.get("binaryData", {}):
        job["runtimeEnvYAML"] = f"working_dir: file://{FOLDER}/{ARCHIVE}\n"
    labels = LABELS | ({} if kuberay.queue is None else {"kueue.x-k8s.io/queue-name": kuberay.queue})
    metadata = {"name": name, "namespace": kuberay.namespace, "labels": labels}
    if cron is None:
        return [config_map, {"apiVersion": API, "kind": "RayJob", "metadata": metadata, "spec": job}]
    spec = {"schedule": cron, "timeZone": timezone, "jobTemplate": job}
    return [config_map, {"apiVersion": API, "kind": "RayCronJob", "metadata": metadata, "spec": spec}]


def written(documents: list[Manifest]) -> str:
    """Return manifests as the YAML that kubectl reads."""
    import yaml

    class Plain(yaml.SafeDumper):
        """Writes texts of several lines as blocks, and equal parts in full."""

        def ignore_aliases(self, _: Any) -> bool:
            return True

    def block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Plain.add_representer(str, block)
    return "---\n".join(yaml.dump(each, Dumper=Plain, sort_keys=False, width=4096) for each in documents)


def apply(documents: list[Manifest]) -> str:
    """Apply manifests with kubectl, and return what it answered.

    Raises:
        UserError: There is no kubectl here, or it refused them.
    """
    command = ["kubectl", "apply", "--filename", "-"]
    try:
        done = subprocess.run(command, input=written(documents), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError(
            "there is no kubectl on this machine; write the manifests with --print, and apply them where there is: "
            "kubectl apply -f FILE"
        ) from None
    if done.returncode:
        raise UserError(f"kubectl apply: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def kubernetes_name(name: str, longest: int) -> str:
    """Return a sweep's name in the characters that Kubernetes allows, with a digest if it had to be cut off."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    plain = plain if plain[:1].isalpha() else f"sweep-{plain}"
    if len(plain) <= longest:
        return plain
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    return f"{plain[: longest - 7].rstrip('-')}-{digest}"


def _check_password(submission: Submission, kuberay: KubeRay) -> None:
    uri = submission.config.tracking.uri
    if holds_password(uri) and not kuberay.secrets:
        raise UserError(
            "tracking.uri: its password would be readable in the manifest; put the address into a secret as "
            "MLFLOW_TRACKING_URI, and name the secret in cluster.kuberay.secrets"
        )


def _config_map(submission: Submission, kuberay: KubeRay, name: str, *, is_schedule: bool) -> Manifest:
    command = submission.command()
    if is_schedule:  # the name is known when it runs
        command = command.replace(f"--name={submission.name}", f'--name="{NAME_OF_FIRING}"')
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": kuberay.namespace, "labels": LABELS},
        "data": {SCRIPT: f"exec {command}\n"},
    }
    if kuberay.code == "config_map" and submission.bundle.files:
        with TemporaryDirectory() as folder:
            limit = MAX_CONFIG_MAP - len(command) - 1024
            advice = ", or build your code into the image (cluster.kuberay.code=image)"
            archive = submission.bundle.write(Path(folder, ARCHIVE), limit, advice).read_bytes()
        document["binaryData"] = {ARCHIVE: base64.b64encode(archive).decode("ascii")}
    return document


def _job(kuberay: KubeRay, name: str) -> Manifest:
    job: Manifest = {
        "entrypoint": f"bash {FOLDER}/{SCRIPT}",
        "submissionMode": "K8sJobMode",
        "backoffLimit": kuberay.max_failures,
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": kuberay.keep_s,
        "rayClusterSpec": {
            "rayVersion": version("ray"),
            "authOptions": {"mode": "token"},
            "headGroupSpec": {
                # No trial runs beside the driver.
                "rayStartParams": {"num-cpus": "0", "num-gpus": "0", "dashboard-host": "0.0.0.0"},  # noqa: S104
                "template": _template(kuberay, kuberay.head, name, "ray-head"),
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
    if kuberay.time_limit_hours is not None:
        job["activeDeadlineSeconds"] = int(kuberay.time_limit_hours * 3600)
    return job


def _template(kuberay: KubeRay, pod: Pod, name: str, container: str) -> Manifest:
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
    spec: Manifest = {"containers": [inside], "volumes": volumes}
    if pod.node_selector:
        spec["nodeSelector"] = dict(pod.node_selector)
    if kuberay.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": each} for each in kuberay.image_pull_secrets]
    if kuberay.service_account is not None:
        spec["serviceAccountName"] = kuberay.service_account
    return {"spec": spec}
