"""Parts of a training step: optimizer, precision, random numbers, CUDA graphs, and the time between steps."""
