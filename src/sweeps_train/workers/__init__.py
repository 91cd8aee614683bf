"""Worker processes: their group, what they exchange, and what they cache between trials."""
