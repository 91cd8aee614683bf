"""Names that are written down: metric keys, MLflow tags, files. Each is documented here, once."""

# --- keys in a trial's result, besides its metrics ---------------------------------------------------------

STEP = "step"
"""Optimizer steps done when a result was reported."""
COMPLETED = "sweeps_completed"
"""True in the last result of a trial that trained to its end (a scheduler stopped the others)."""
STOPPED = "sweeps_stopped"
"""True in the last result of a trial that a person stopped."""
EVALUATIONS = "evaluations"
"""Evaluations done when a result was reported: the usual resource of early stopping, besides the next five. What a
training does not count is not among a result's keys."""
STEPS = "steps"
"""Optimizer steps done: the same number as ``step``."""
EPOCHS = "epochs"
"""Passes over the training data, with fractions."""
SAMPLES = "samples"
"""Samples consumed by all workers."""
TOKENS = "tokens"
"""Tokens, without padding, that went through the model; of language models alone."""
SECONDS = "seconds"
"""Time spent on optimizer steps, over all attempts."""

# --- keys in a trial's Tune config -------------------------------------------------------------------------

TRIAL = "trial"
"""Number of the trial within its sweep, as text: ``0007``."""
PARAMETERS = "parameters"
"""Sampled values by dotted path."""
ORIGIN = "origin"
"""The ``Origin`` of a trial that has taken over another one's state."""

# --- attributes of an Optuna trial -------------------------------------------------------------------------

NUMBER = "sweeps:trial"
"""Number of the trial within its sweep. Optuna's own number counts points that were not trained, too."""
REASON = "sweeps:reason"
"""Why a trial failed, or a point was not trained."""
VIOLATIONS = "sweeps:violations"
"""By how much a trial has broken each limit on a metric at most, relative to the limit."""
REPORT_PREFIX = "sweeps:report:"
"""``sweeps:report:40``: all objectives as reported at step 40, where there are several."""

ORIGIN_PREFIX = "sweeps:origin:"
"""``sweeps:origin:2``: where a trial went on from when it took over another one's state for the second time, and with
which values."""

# --- MLflow tags -------------------------------------------------------------------------------------------

TAG_KIND = "sweeps.kind"
"""``sweep`` for the parent run, ``trial`` for a nested one."""
TAG_SWEEP = "sweeps.sweep"
"""The sweep's name."""
TAG_CONF = "sweeps.conf"
"""The ``conf=`` that the sweep was started with."""
TAG_TRIAL = "sweeps.trial"
"""The trial's id, unique within its sweep."""
TAG_STATE = "sweeps.state"
"""State of a trial (running, finished, pruned, failed, stopped) or of a sweep
(running, finished, stopped, failed, interrupted)."""
TAG_ATTEMPT = "sweeps.attempt"
"""How many times the trial was started."""
TAG_METRIC = "sweeps.metric"
"""What is optimised; several objectives as a JSON list, as their modes and values are."""
TAG_MODE = "sweeps.mode"
TAG_VALUE = "sweeps.value"
"""Best value of the metric that the trial reported; of several objectives, the values of the report that was best by
the first."""
TAG_VIOLATION = "sweeps.violation"
"""The limit on a metric that the trial broke, in words: it cannot be the best."""
TAG_PARETO = "sweeps.pareto"
"""``true`` on the trials of the Pareto front of several objectives."""
TAG_STEPS = "sweeps.steps"
"""Optimizer steps that the trial has done."""
TAG_SPANS = "sweeps.spans"
"""When and on which workers the trial trained, as JSON."""
TAG_CHECKPOINT_BEST = "sweeps.checkpoint.best"
"""Artifact URI of the trial's best checkpoint."""
TAG_CHECKPOINT_LAST = "sweeps.checkpoint.last"
"""Artifact URI of the trial's newest checkpoint."""
TAG_ERROR = "sweeps.error"
"""Why a trial failed: the last line of its error."""
TAG_BEST_TRIAL = "sweeps.best.trial"
"""Id of the sweep's best trial so far; of several objectives, the ids of the Pareto front as a JSON list."""
TAG_BEST_VALUE = "sweeps.best.value"
TAG_BEST_PARAMETER_PREFIX = "best."
"""``best.train.lr`` on the parent run: a parameter of the best trial. Tags, since MLflow's parameters
cannot change and the best trial does."""
TAG_COUNTS = "sweeps.counts"
"""Trials by state, as JSON."""
TAG_TIME = "sweeps.time"
"""``wall_s``, ``train_s``, ``goodput``, ``cpu_s``, ``gpu_s`` and ``cost`` of the sweep in all its sessions, as JSON."""
TAG_HEARTBEAT = "sweeps.heartbeat"
"""Unix time at which the sweep's driver was last alive; a running sweep without one for long is interrupted."""
TAG_FOLDER = "sweeps.folder"
"""The sweep's folder, on the machine that runs it or on storage that machines share."""
TAG_REQUEST = "sweeps.request"
"""What a person asks of the running sweep from another terminal, as JSON with an id."""
TAG_ANSWER = "sweeps.answer"
"""What its driver answers, with the same id."""
TAG_COMMAND = "sweeps.command"
"""The command that started the sweep."""

# --- MLflow metrics ------------------------------------------------------------------------------------------

PARAMETER_PREFIX = "param/"
"""``param/train.lr``: a value that a trial was given while it trained, by population based training; a tag, if it is no
number."""

# --- artifacts and files -----------------------------------------------------------------------------------

CONFIG_ARTIFACT = "config.yaml"
"""The composed config: the sweep's on the parent run, the trial's own on a nested run."""
TRIALS_ARTIFACT = "trials.json"
"""Table of all trials on the parent run, in the form of ``mlflow.log_table``."""
CHECKPOINT_ARTIFACTS = "checkpoints"
"""Folder of a trial run's artifacts that holds ``best`` and ``last``."""
