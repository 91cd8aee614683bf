"""A real S3 server on this machine (moto), for sweeps whose folder is in an object store."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
from recording import free_port
from waiting import wait_until

BUCKET = "bucket"


@contextmanager
def s3_server(secret: str = "secret") -> Iterator[dict[str, str]]:
    """A server with an empty bucket; yields the environment variables by which it is reached."""
    port = free_port()
    code = "import sys; from moto.server import main; main(sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id="key",
        aws_secret_access_key=secret,
        region_name="us-east-1",
    )

    def made() -> bool:
        try:
            return bool(client.create_bucket(Bucket=BUCKET))
        except Exception:  # noqa: BLE001 - it has not started yet
            return False

    try:
        wait_until(made, 60)
        yield environment
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
