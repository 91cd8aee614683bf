"""What one GPU is worth to Sweeps, in parts that each keep a limit of time. Nothing but the last one needs Ray."""
