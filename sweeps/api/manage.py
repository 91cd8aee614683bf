"""Functions that use a recorded sweep: ``export``, ``save_model``, ``register``, ``write_report`` and ``clean``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.api.read import load
from sweeps.api.sweep import trial_id
from sweeps.operations.local import Local

if TYPE_CHECKING:
    from sweeps.cleaning.cleaning import Cleaning
    from sweeps.registry.register import RegisteredModel


def write_report(sweep: str, folder: str | Path | None = None, *, tracking_uri: str | None = None) -> Path:
    """Write the report of a sweep, a web page with figures; also possible while the sweep runs.

    The page is attached to the sweep's run in MLflow as well.

    Args:
        sweep: Name of the sweep.
        folder: Folder of the page; default: ``report/`` in the sweep's folder.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.

    Returns:
        The path of the page.

    Raises:
        UserError: There is no such sweep, or the folder cannot be written.

    Example:
        >>> sweeps.write_report("first", "first-report").name
        'report.html'
    """
    return Local(tracking_uri).report(sweep, None if folder is None else Path(folder))


def export(sweep: str, file: str | Path, *, trial: str | int | None = None, tracking_uri: str | None = None) -> Path:
    """Write the best trial, or another one, as a config file that ``run`` accepts.

    Args:
        sweep: Name of the sweep.
        file: Path of the YAML file.
        trial: Id of the trial, or its number; default: the best.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.

    Returns:
        The path of the file.

    Raises:
        UserError: There is no such trial, or the file cannot be written.

    Example:
        >>> file = sweeps.export("first", "best.yaml")
        >>> sweeps.dry_run("best.yaml").config.search.num_trials
        1
    """
    from sweeps.plan.export import choose, exported, write_export

    record = load(sweep, tracking_uri=tracking_uri)
    write_export(exported(record, choose(record, trial_id(trial)), Path(file)), Path(file))
    return Path(file)


def save_model(
    sweep: str,
    folder: str | Path,
    *,
    trial: str | int | None = None,
    merged: bool = False,
    tracking_uri: str | None = None,
) -> Path:
    """Save the model of the best trial, or another one, in a new folder: a language model for transformers, PEFT and
    vLLM, any other for ``sweeps_train.load_model``.

    Args:
        sweep: Name of the sweep.
        folder: The folder; it may exist if it is empty.
        trial: Id of the trial, or its number; default: the best.
        merged: Whether LoRA adapters are merged into their base model.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.

    Returns:
        The path of the folder.

    Raises:
        UserError: There is no such trial or checkpoint, or the folder is not empty.

    Example:
        >>> folder = sweeps.save_model("first", "digit_reader")
        >>> sorted(file.name for file in folder.iterdir())
        ['image_shape.json', 'model.safetensors', 'training.json']
    """
    from sweeps.plan.export import choose, config_of
    from sweeps.registry.model_folder import save_model as save
    from sweeps.registry.model_names import check_model

    record = load(sweep, tracking_uri=tracking_uri)
    chosen = choose(record, trial_id(trial))
    check_model(config_of(record, chosen), None, None, Path(folder), merged=merged, is_trained=True)
    save(record, chosen, Path(folder), merged=merged)
    return Path(folder)


def register(
    sweep: str,
    name: str,
    *,
    trial: str | int | None = None,
    alias: str = "champion",
    merged: bool = False,
    tracking_uri: str | None = None,
) -> RegisteredModel:
    """Register the checkpoint of the best trial, or another one, as a new version of a model in MLflow's registry.

    Args:
        sweep: Name of the sweep.
        name: Name of the model.
        trial: Id of the trial, or its number; default: the best.
        alias: Alias that moves to the new version.
        merged: Whether LoRA adapters are merged into their base model.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.

    Returns:
        The registered version.

    Raises:
        UserError: There is no such trial, or its model cannot be registered this way.

    Example:
        >>> sweeps.register("first", "digits").uri
        'models:/digits@champion'
    """
    from sweeps.plan.export import choose, config_of
    from sweeps.registry.model_names import check_registration

    operations = Local(tracking_uri)
    record = operations.record(sweep)
    chosen = choose(record, trial_id(trial))
    check_registration(config_of(record, chosen), name, alias, merged=merged, is_trained=True)
    return operations.register(record, chosen, name, alias, merged=merged)


def clean(
    *sweeps: str,
    older_than: str | None = None,
    keep_last: int | None = None,
    max_size: str | None = None,
    keep_best: int = 1,
    runs: bool = False,
    unfinished: bool = False,
    dry_run: bool = False,
    tracking_uri: str | None = None,
) -> Cleaning:
    """Remove checkpoints of trials that have ended. Those of the best trials and of registered models always stay.

    Args:
        sweeps: Names of the sweeps; default: all.
        older_than: Minimum time since a sweep has ended, such as ``30d``.
        keep_last: Number of newest sweeps that are left alone.
        max_size: Size that all checkpoints may have together, such as ``50GiB``; no more than needed is removed.
        keep_best: Number of trials of a sweep that keep their checkpoints.
        runs: Whether the trials' MLflow runs are deleted, too.
        unfinished: Whether to clean interrupted and stopped sweeps, too, which cannot be resumed afterwards.
        dry_run: Whether to remove nothing, and only return what would be removed.
        tracking_uri: MLflow store or server; default: see the module ``sweeps``.

    Returns:
        The checkpoints that were removed, or would be.

    Raises:
        UserError: No argument says what to remove, or there is no such sweep.

    Example:
        >>> cleaning = sweeps.clean("first", dry_run=True)
        >>> [removal.trial.trial for removal in cleaning.removals]
        ['0001']
    """
    from sweeps.cleaning.cleaning import clean_by

    return clean_by(
        Local(tracking_uri).uri,
        sweeps,
        dry_run=dry_run,
        older_than=older_than,
        keep_last=keep_last,
        max_size=max_size,
        keep_best=keep_best,
        runs=runs,
        unfinished=unfinished,
    )
