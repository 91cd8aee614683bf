"""Imports for worker processes of a cluster that Sweeps starts on this machine, loaded when the process starts; on
other clusters the setup function of ``environment`` does the same."""

from sweeps.runtime.spare_processes import import_when_idle

import_when_idle()
