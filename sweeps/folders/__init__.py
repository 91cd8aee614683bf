"""Folders: a sweep's, its trials', those of configs, and files in the working folder that hide a package."""
