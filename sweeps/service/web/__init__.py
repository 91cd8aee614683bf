"""Web pages of the service. Begin with ``router.py`` for the pages and ``action_routes.py`` for the forms."""
