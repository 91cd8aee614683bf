"""Files of any kind: written atomically, memory-mapped, or cached."""
