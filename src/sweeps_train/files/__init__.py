"""Files of any kind: written completely or not at all, mapped into memory, or kept in the cache."""
