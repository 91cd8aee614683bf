"""Training code as users write it, without any dependency on Sweeps; configs in ``conf/`` search over it."""
