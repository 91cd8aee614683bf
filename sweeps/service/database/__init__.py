"""The service's database: tables, transactions, and the versions of its schema. Begin with ``tables``."""
