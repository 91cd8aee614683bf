"""Parts of ``benchmarks/trial_overhead.py``: the trainings, the four ways to run them, and the measurements."""
