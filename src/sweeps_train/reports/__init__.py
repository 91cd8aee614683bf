"""Reports of a training: its position, its metrics, and where they are sent."""
