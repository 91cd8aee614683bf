"""A checked sweep that a cluster will run, and the command of its driver there."""

from __future__ import annotations

import logging
import math
import shlex
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from sweeps.compose import Composition
from sweeps.config import SweepConfig
from sweeps.config.scaling import Scaling
from sweeps.errors import ConfigError, DoesNotFit, TrackingUnreachable, UserError, raise_mistakes
from sweeps.launch.bundle import CONFIGS, Bundle
from sweeps.plan.plan import make_plan
from sweeps.runtime.node_resources import accelerator
from sweeps.runtime.trials_at_once import fit
from sweeps.storage.location import is_remote, joined
from sweeps.storage.object_store import ObjectStore
from sweeps.storage.state_mirror import newer_files
from sweeps.texts.uri_passwords import holds_password, redact_uri
from sweeps.texts.wording import counted
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.sweep_run import PARENT_FILE, is_recorded
from sweeps.tracking.uris import default_uri, sqlite_path

logger = logging.getLogger(__name__)

Target = Literal["ray", "slurm", "kuberay"]
JOIN = "cluster.address=auto"
"""Override with which a driver joins the cluster in which it is started."""
ENDS_WITHIN_S = 120.0
"""Seconds that a driver takes to end when it is told to, in addition to the time of its trials."""
MANY = 4096
"""Assumed CPUs of a node that has as many as its trials can use."""
READ_WITHIN_S = 15.0
"""Maximum seconds to look for a sweep in an object store. Without network, libraries of some try for a quarter of an
hour."""


def killed_after_s(config: SweepConfig) -> int:
    """Return the seconds after which a scheduler may kill a sweep that it has told to end; it ends by itself before."""
    return math.ceil(ENDS_WITHIN_S + config.ends_within_s)


@dataclass(frozen=True)
class Submission:
    """A checked sweep that is ready to be submitted to a cluster."""

    name: str
    conf: str
    """Name of the sweep's config."""
    config: SweepConfig
    arguments: list[str]
    """Arguments of ``python -m sweeps``. Running them again continues the sweep."""
    bundle: Bundle = field(default_factory=Bundle)
    """Files that are sent with the sweep; none if the cluster sees the same folder."""
    scalings: list[Scaling] = field(default_factory=list)
    """Workers of every kind of trial in the space; empty if the sweep has run already."""
    configs: list[Path] = field(default_factory=list)
    """The user's YAML files that the config was read from; empty if the sweep has run already."""

    @property
    def job_name(self) -> str:
        """Name of the job, which differs from those of earlier jobs of the sweep."""
        return f"{self.name}-{time.strftime('%Y%m%d-%H%M%S')}" if self.arguments[0] == "resume" else self.name

    def command(self, python: str = "python") -> str:
        """Return the command of the driver, for a shell."""
        return shlex.join([python, "-m", "sweeps", *self.arguments])

    def check_is_new(self, to: Target) -> None:
        """Check that there is no sweep of this name, which the job would continue with that sweep's own config. Stores
        that this machine cannot read are left to the job.

        Raises:
            UserError: There is such a sweep.
        """
        uri, place, option = self.config.tracking.uri, None, ""
        with suppress(TrackingUnreachable):
            if is_recorded(uri, self.name):
                place, option = redact_uri(uri), tracking_option(uri)
        output_dir = self.config.output_dir
        if place is None and is_remote(output_dir) and _has_sweep(joined(output_dir, self.name)):
            place, option = output_dir, " --tracking-uri=URI"  # of the store that has its record
        if place is not None:
            raise UserError(
                f"--name={self.name}: {place} has a sweep of this name; choose another --name, or continue it "
                f"with its own config: `python -m sweeps submit --resume={self.name} --to={to}{option}`"
            )

    def check_fit(self, asked: str, nodes: int, cpus: float, gpus: float) -> None:
        """Check that the nodes that a section of the config asks for, each with these CPUs and GPUs, hold at least one
        trial, and warn if more CPUs would use more of the GPUs.

        Raises:
            DoesNotFit: No trial fits on the nodes.
        """
        if not self.scalings:
            return
        kinds = {accelerator(each.accelerator_type): gpus for each in self.scalings if each.accelerator_type and gpus}
        node = {"CPU": cpus, **({"GPU": gpus} if gpus else {}), **kinds}
        try:
            found, possible = (
                fit(self.config, self.scalings, [{**node, "CPU": each}] * nodes) for each in (cpus, MANY)
            )
        except DoesNotFit as error:
            raise DoesNotFit(error.reason, f"ask for more in {asked}") from None
        if found.use_gpu and found.concurrent < possible.concurrent:
            logger.warning(
                "%s: %g CPUs and %g GPUs a node run %s at once, and leave GPUs unused; more CPUs allow %d",
                *(asked, cpus, gpus, counted(found.concurrent, "trial"), possible.concurrent),
            )


def tracking_option(uri: str) -> str:
    """Return the option with which a command on this machine reads a tracking store; empty if none is needed, or if it
    would show a password."""
    return "" if uri == default_uri() or holds_password(uri) else f" --tracking-uri={shlex.quote(uri)}"


def _has_sweep(place: str) -> bool:
    """Whether an object store has a sweep's folder; False if this machine cannot read it soon."""
    found = list[str]()

    def look() -> None:
        with suppress(OSError, ValueError, ImportError):
            found.extend(newer_files(ObjectStore(place), [PARENT_FILE], than="")[1])

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(READ_WITHIN_S)
    return bool(found)


def new_submission(
    tokens: Sequence[str], config_dirs: Sequence[Path], name: str | None, command: str, to: Target
) -> Submission:
    """Check a new sweep for a cluster.

    Raises:
        UserError: The sweep has mistakes that this machine can detect; the message has all of them.
    """
    if to == "slurm":  # its nodes see the same folders
        plan = make_plan([*tokens, JOIN], config_dirs, name, command)
        arguments, bundle = [*tokens, *(f"--config-dir={each.expanduser()}" for each in config_dirs)], Bundle()
    else:
        plan = make_plan(tokens, config_dirs, name, command, where="elsewhere")
        bundle = Bundle.of_folder(Path.cwd(), leave_out=Path(plan.config.output_dir))
        arguments = _travelling(tokens, config_dirs, plan.composition.files, bundle)
        is_given = any(token.startswith("tracking.uri=") for token in tokens)
        if not is_given and not holds_password(plan.config.tracking.uri):  # the job's command can be seen by others
            arguments.append(f"tracking.uri={plan.config.tracking.uri}")
    arguments = ["run", *arguments, JOIN, f"--name={plan.name}", "--resume", "--json"]
    composed = plan.composition
    return Submission(plan.name, composed.conf, plan.config, arguments, bundle, plan.scalings, composed.files)


def resumed_submission(record: SweepRecord, composition: Composition, to: Target, uri: str) -> Submission:
    """Return a submission that continues a recorded sweep, whose driver reads the record at the URI. If that has a
    password, the submission is without it, and the driver has a URI of its own in its environment.

    Raises:
        ConfigError: The sweep was not started on a cluster.
    """
    config = composition.recorded_at(redact_uri(uri)).config
    if config.cluster.address == "local":
        raise ConfigError(
            f"{record.sweep}: was started with cluster.address=local, and continues on one machine only: "
            f"python -m sweeps resume {record.sweep}"
        )
    known = [] if holds_password(uri) else [f"--tracking-uri={uri}"]
    bundle = Bundle() if to == "slurm" else Bundle.of_folder(Path.cwd(), leave_out=Path(config.output_dir))
    return Submission(record.sweep, record.conf, config, ["resume", record.sweep, *known, "--json"], bundle)


def check_reachable(config: SweepConfig, folders: Sequence[str] | None = None, arguments: Sequence[str] = ()) -> None:
    """Check that a driver on another machine can write to the sweep's stores. Any absolute path is accepted unless it
    is known which folders the machines of the cluster share.

    Args:
        config: The sweep's.
        folders: Folders that the machines share.
        arguments: Those of a driver in a pod, which may have another URI in its environment than this machine.

    Raises:
        ConfigError: Names every store that only this machine has.
    """
    uri, output_dir = config.tracking.uri, config.output_dir
    where = "that all nodes share"
    if folders is not None:
        where = f"below {' or '.join(folders) or 'a path of cluster.kuberay.volumes'}"
    only_here, store, mistakes = "only this machine has it; give the", sqlite_path(uri), list[str]()
    if store is not None and not _is_shared(store, folders):
        mistakes.append(f"tracking.uri={uri}: {only_here} address of an MLflow server, or a file {where}")
    if _is_loopback(uri) and any(uri in each for each in arguments):
        mistakes.append(f"tracking.uri={redact_uri(uri)}: in a pod this is the pod itself; give the name of the server")
    if not is_remote(output_dir) and not _is_shared(Path(output_dir), folders):
        mistakes.append(f"output_dir={output_dir}: {only_here} absolute path of a folder {where}")
    raise_mistakes(mistakes)


def _is_shared(path: Path, folders: Sequence[str] | None) -> bool:
    return path.is_absolute() and (folders is None or any(path.is_relative_to(each) for each in folders))


def _is_loopback(uri: str) -> bool:
    host = urlsplit(uri).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _travelling(tokens: Sequence[str], config_dirs: Sequence[Path], read: Sequence[Path], bundle: Bundle) -> list[str]:
    """Return the arguments with config folders replaced by their paths in the bundle; those from which no file was read
    are left out.

    Args:
        read: Files of these folders that the sweep needs, which are added to the bundle.
    """
    arguments = []
    for token in tokens:
        file = Path(token.removeprefix("conf="))
        if token.startswith("conf=") and file.suffix == ".yaml":
            folder = _packed(file.parent, f"{CONFIGS}/of_file", read, bundle)
            bundle.add(Path(folder, file.name).as_posix(), file.expanduser())
            arguments.append(f"conf={Path(folder, file.name).as_posix()}")
        else:
            arguments.append(token)
    packed = (_packed(each, f"{CONFIGS}/{index}", read, bundle) for index, each in enumerate(config_dirs))
    return [*arguments, *(f"--config-dir={folder}" for folder in packed if bundle.has_folder(folder))]


def _packed(folder: Path, name: str, read: Sequence[Path], bundle: Bundle) -> str:
    """Return the path of a folder of configs in the bundle, ``name`` for one from elsewhere. The files in it that were
    read are there, also those that are hidden or that git ignores."""
    folder = folder.expanduser().resolve()
    if folder.is_relative_to(here := Path.cwd()):
        name = folder.relative_to(here).as_posix()
    for file in read:
        if file.is_relative_to(folder):
            bundle.add(Path(name, file.relative_to(folder)).as_posix(), file)
    return name
