"""Plans of sweeps: everything that is known and checked before a sweep starts, whether it is new, resumed, extended or
retrained. Begin with ``plan.make_plan``."""
