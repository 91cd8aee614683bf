"""Provenance of a sweep: its code, packages, data, machine and command, from which it can be reproduced.

Begin with ``provenance``. ``redaction`` hides secrets in everything that is recorded.
"""
