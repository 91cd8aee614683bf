"""Running trials: the Tune trainable, the worker groups that trials are given to, and what passes between them."""
