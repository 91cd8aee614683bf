"""Nights that build on each other: what one learns from those before, who is champion, and whether a night is worse."""
