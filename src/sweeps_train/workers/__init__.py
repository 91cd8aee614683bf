"""Worker processes: their group, what they exchange, and what they keep between trials."""
