"""The training library: what runs on a worker. Works under Sweeps, under ``torchrun`` and in one process."""
