"""Measurements of a training: metrics of steps, FLOPs, and time by activity."""
