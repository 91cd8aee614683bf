"""Operations on recorded sweeps: their interface (``operations``), and its implementations on this machine (``local``)
and over HTTP (``remote``)."""
