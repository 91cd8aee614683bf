"""Strategies: how one training is spread over its workers. Begin reading at ``build_strategy``, then ``strategy``.

``ddp.py`` and ``fsdp.py`` are data parallel; ``tensor_parallel.py``, ``context_parallel.py`` and ``pipeline.py`` divide
one model among workers.
"""
