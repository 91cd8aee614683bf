"""Interface of everything that a person does with recorded sweeps (``operations``): on this machine (``local``), and
over HTTP (``remote``)."""
