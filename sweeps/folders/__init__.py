"""Folders of sweeps, trials and configs, and the check for files in the working folder that shadow a package."""
