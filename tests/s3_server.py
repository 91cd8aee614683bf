"""A real S3 server in this process (moto), for sweeps whose folder is in an object store."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import requests
from moto.server import ThreadedMotoServer

BUCKET = "bucket"


@contextmanager
def s3_server(secret: str = "secret") -> Iterator[dict[str, str]]:
    """A server with an empty bucket; yields the environment variables by which it is reached."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # which tells of every request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    environment = {
        "AWS_ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port()),
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
    try:
        client.create_bucket(Bucket=BUCKET)
        yield environment
    finally:
        requests.post(f"{environment['AWS_ENDPOINT_URL']}/moto-api/reset", timeout=30)  # its content is the process's
        server.stop()
