"""Private names of torch, transformers and datasets: the only package of the training library that touches them.

``tests/compat/`` has a contract test for each module, whose failure says in one line which name has moved.
"""
