"""Creates a user's own project: ``python -m sweeps init``.

``kinds`` lists what can be trained, ``templates/`` holds a project of each kind, and ``project`` makes its files.
``init --from`` reads the options of an existing script (``script_options``), proposes distributions for them
(``proposals``), and makes the files of a sweep over them (``script_project``).
"""
