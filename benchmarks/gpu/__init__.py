"""Measurements on one GPU, in parts that each keep a limit of time. Only the last part needs Ray."""
