"""Programs as trials (``task=command``).

Begin reading at ``run.py``: start the program, read its metrics, report, end it. ``placeholders.py``,
``command_line.py`` and ``config_files.py`` make from a config what the program gets; ``output.py`` and ``sources.py``
read its metrics, and ``lead.py`` decides what is reported; ``program.py`` is the process, and ``guard.py`` ends it if
the worker dies.
"""
