"""Data sets: from files, from the Hugging Face hub, and from what every machine has."""
