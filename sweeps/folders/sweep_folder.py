"""Names of files and folders in a sweep's folder."""

from __future__ import annotations

SWEEP_FILE = "sweep.json"
"""File with the whole composition, so that later changes of ``conf/`` do not change the sweep."""
COPY_FILE = "sweep.copy.json"
"""Second copy of ``SWEEP_FILE``, in case a disk damages the first."""
LOG_FILE = "driver.log"
"""File with the output of a driver in the background."""
ERROR_FILE = "driver-error.txt"
"""File with the tracebacks of unexpected errors that have ended a driver."""
GROUPS_FOLDER = "groups"
"""Folder with the logs of workers that train several trials at a time."""
RAY_TRAIN_FOLDER = "ray_train"
"""Folder for Ray Train's own files, which contain nothing of a trial."""
MEASURED_FOLDER = "measured"
"""Folder for the files of trainings that measure workers before the search."""
