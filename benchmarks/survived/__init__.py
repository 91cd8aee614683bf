"""Arms, workload and model of ``benchmarks/goodput.py``."""
