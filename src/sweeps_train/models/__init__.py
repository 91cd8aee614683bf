"""Models that a trial trains, and the small base model that ships with Sweeps."""
