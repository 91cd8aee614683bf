"""HTML report of a sweep: one self-contained page from MLflow's record alone. Begin with ``report.py``."""
