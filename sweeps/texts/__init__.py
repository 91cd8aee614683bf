"""Texts for people: counts and names in messages, safe output for terminals, and hidden passwords."""
