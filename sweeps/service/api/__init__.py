"""The REST API under ``/api/v1``, with one file per resource."""
