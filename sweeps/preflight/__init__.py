"""A look at a user's data and model before the first trial, in a process of its own."""
