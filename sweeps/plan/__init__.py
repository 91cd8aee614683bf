"""Plans of sweeps: all knowledge and checks before a sweep starts, whether it is new, resumed, extended or retrained.
Begin with ``plan.make_plan``."""
