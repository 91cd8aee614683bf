"""Texts for people: counts and names in messages, what a terminal may show, and what must not be shown."""
