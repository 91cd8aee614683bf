"""Model of ``benchmarks/goodput.py``."""
