"""An object store on this machine: a real S3 server, as the tests use it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from s3_server import BUCKET, s3_server


@contextmanager
def served_store() -> Iterator[str]:
    """Address of an empty store, which this process and those that it starts can use meanwhile."""
    before = dict(os.environ)
    with s3_server() as environment:
        os.environ.update(environment)
        try:
            yield f"s3://{BUCKET}"
        finally:
            os.environ.clear()
            os.environ.update(before)
