"""Generators of the reference: each module writes pages from what the program itself says, so that they cannot differ.

``config_keys`` reads the schema, ``config_groups`` the folder ``conf/``, ``verbs`` the command line, ``routes`` the
OpenAPI document, ``python_functions`` the docstrings, ``environment`` the environment variables. ``docs/build_site.py``
calls them.
"""
