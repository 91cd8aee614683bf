"""What a person can do with recorded sweeps: one interface (``operations``), on this machine (``local``), over HTTP
(``remote``), and in the service for one of its users (``sweeps.service.commands``)."""
