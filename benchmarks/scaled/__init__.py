"""Parts of the benchmark ``scale.py``: how the costs of a sweep grow with its workers and trials."""
