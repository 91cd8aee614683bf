"""Private names of torch, transformers and datasets: the only package of the training library that touches them.

``tests/compat/`` has a contract test for each module, which says in one line what has moved.
"""
