"""Ways of fitting an estimator piece by piece: boosting rounds, trees, or passes over the data."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Protocol

from sweeps_train.estimators.construct import library_of

DEFAULT_ROUNDS = 100
"""Boosting rounds of XGBoost, whose estimator defaults to None."""
PIECES = 20
"""Number of reports while an estimator is fitted; ``task.report_every`` overrides it."""
AT_ONCE = ("dart", "rf", "random_forest", "gblinear", "goss")
"""Kinds of boosters that cannot be continued exactly, since they change earlier rounds or depend on all of them, or use
all rows in the first rounds of each call, as ``goss`` does."""
STOPPING = ("tol", "n_iter_no_change")
"""Arguments of scikit-learn's rules that stop an estimator after passes without progress."""
KIND_OF_BOOSTER = ("booster", "boosting_type", "boosting", "boost", "data_sample_strategy")
"""Arguments that name the kind of booster: one of XGBoost, the three aliases of LightGBM, and where its ``goss`` is
now."""


class Growth(Protocol):
    """A way to fit an estimator step by step, up to ``total`` units."""

    total: int

    def grow(self, estimator: Any, inputs: Any, targets: Any, done: int, number: int) -> int:
        """Fit ``number`` further units of an estimator that has ``done`` units, in place, to all training rows. Return
        the number of units fitted now, which is smaller if the estimator has stopped by itself."""


def growth_of(estimator: Any) -> Growth:
    """Decide how to fit an estimator piece by piece, or in a single call if that is not possible."""
    parameters, name = estimator.get_params(), type(estimator).__name__
    fit = inspect.signature(estimator.fit).parameters
    boosters = {parameters.get(each) for each in KIND_OF_BOOSTER}
    if library_of(type(estimator)) in ("xgboost", "lightgbm"):
        if boosters & {*AT_ONCE} or name.startswith("XGBRF"):
            return AtOnce()
        argument = "xgb_model" if "xgb_model" in fit else "init_model"
        return Boosting(parameters["n_estimators"] or DEFAULT_ROUNDS, argument)
    # Each call would start anew to count rounds without progress, or refuse to estimate with the rows that it left out.
    needs_all = parameters.get("n_iter_no_change") or (parameters.get("oob_score") and name.startswith("Bagging"))
    if "warm_start" in parameters and "n_estimators" in parameters and not needs_all:
        return WarmStart(parameters["n_estimators"], "n_estimators")
    if "warm_start" in parameters and name.startswith("HistGradientBoosting"):
        return WarmStart(parameters["max_iter"], "max_iter")
    if hasattr(estimator, "partial_fit") and isinstance(parameters.get("max_iter"), int) and not _counts(estimator):
        return Passes(parameters["max_iter"])
    return AtOnce()


def _counts(estimator: Any) -> bool:
    """Whether an estimator has an option that counts over all passes: ``partial_fit`` refuses it (classes, rows left
    out), ignores it (passes without progress, after which it stops or lowers its learning rate), or computes it wrongly
    (the average of its intercepts)."""
    told, defaults = estimator.get_params(), inspect.signature(type(estimator)).parameters
    stops = any(told[name] != defaults[name].default for name in STOPPING if name in told and name in defaults)
    return bool(
        told.get("early_stopping") is True
        or told.get("class_weight") == "balanced"
        or told.get("average")
        or (told.get("learning_rate") == "adaptive" and type(estimator).__name__.startswith("SGD"))
        or (stops and told.get("tol") is not None)
    )


@dataclass
class Boosting:
    """Boosting rounds of XGBoost or LightGBM; each piece continues from the previous model.

    Each piece begins with its own seeds, so that a resumed training draws the same rows and columns as one that was
    never interrupted, and never those of the first piece again.
    """

    total: int
    argument: str
    """Argument of ``fit`` that takes the model to continue from."""

    def grow(self, estimator: Any, inputs: Any, targets: Any, done: int, number: int) -> int:
        own = estimator.get_params()
        booster = None
        if done:
            booster = estimator.get_booster() if self.argument == "xgb_model" else estimator.booster_
        seeds = {name: value for name, value in own.items() if _is_seed(name) and isinstance(value, int)}
        estimator.set_params(n_estimators=number, **{name: seed + done for name, seed in seeds.items()})
        try:
            estimator.fit(inputs, targets, **{self.argument: booster})
        finally:
            estimator.set_params(n_estimators=own["n_estimators"], **seeds)
        return done + number


def _is_seed(name: str) -> bool:
    return name == "random_state" or name.endswith("seed")  # such as LightGBM's bagging_seed


@dataclass
class WarmStart:
    """Trees or rounds that a scikit-learn ensemble adds by ``warm_start``."""

    total: int
    argument: str
    """Argument with the number of trees or rounds."""

    def grow(self, estimator: Any, inputs: Any, targets: Any, done: int, number: int) -> int:
        estimator.set_params(warm_start=True, **{self.argument: done + number})
        estimator.fit(inputs, targets)
        reached = getattr(estimator, "n_iter_", done + number)  # it may stop early by itself
        return int(reached) if isinstance(reached, int) else done + number


@dataclass
class Passes:
    """Passes of ``partial_fit`` over the training rows.

    Each pass has its own seed: with the same one, scikit-learn would take the rows in the same order in every pass.
    """

    total: int

    def grow(self, estimator: Any, inputs: Any, targets: Any, done: int, number: int) -> int:
        takes_classes = "classes" in inspect.signature(estimator.partial_fit).parameters
        classes = {"classes": sorted(set(targets.tolist()))} if takes_classes else {}
        seed = estimator.get_params().get("random_state")
        try:
            for each in range(done, done + number):
                if isinstance(seed, int):
                    estimator.set_params(random_state=(seed + each) % 2**32)
                estimator.partial_fit(inputs, targets, **classes)
        finally:
            if isinstance(seed, int):
                estimator.set_params(random_state=seed)
        return done + number


@dataclass
class AtOnce:
    """A single call of ``fit``, for estimators that cannot be fitted piece by piece."""

    total: int = 1

    def grow(self, estimator: Any, inputs: Any, targets: Any, done: int, number: int) -> int:
        estimator.fit(inputs, targets)
        return 1
