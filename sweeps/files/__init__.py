"""Files that Sweeps writes: completely or not at all, with a checksum, in a known version; values as in configs."""
