"""Several trainings on one frozen base at a time. Begin reading at ``shared_group.py``."""
