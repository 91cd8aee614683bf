"""Removes what nobody needs any more: checkpoints and runs of trials that have ended; never the best of a sweep."""
