"""The REST API under ``/api/v1``: a resource a file."""
