"""Training code as a user would write it, which knows nothing of Sweeps; configs in ``conf/`` search over it."""
