"""Searches of other libraries, each behind the same questions, for ``search_quality.py``. Their packages are in
``.venv/peers`` (``make .venv/peers/.ready``)."""
