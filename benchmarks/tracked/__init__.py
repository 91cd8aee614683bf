"""Cost of tracking in a training: the arms, and the stores that they write to."""
