"""What tracking costs a training: the arms, and the stores that they write to."""
