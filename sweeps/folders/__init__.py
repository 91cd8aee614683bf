"""Folders of sweeps, trials and configs, and files in the working folder that hide a package."""
