"""Files that Sweeps writes: complete or not at all, with a checksum, in a known version."""
