"""Where a sweep comes from: its code, packages, data, machine and command, as far as another can be made like it."""
