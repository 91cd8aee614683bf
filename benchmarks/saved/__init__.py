"""Parts of ``benchmarks/checkpoint.py``."""
