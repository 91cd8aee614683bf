"""The report of a sweep: one self-contained HTML page, and the same figures as pictures, from MLflow's record alone."""
