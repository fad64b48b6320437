"""Opens the filesystem of a URI. Filesystems are kept for the life of the process, one for each access.

Credentials are resolved once; those that expire are fetched again before they do.
"""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from airflow_provider_coordination.aws import CONNECT_TIMEOUT_SECONDS, AwsSettings, aws_client, aws_session
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.access import Access, bucket_path
from airflow_provider_coordination.spark.files import Files
from airflow_provider_coordination.spark.s3_objects import BucketFiles

_OPENING = threading.Lock()
"""Held while a filesystem is opened, so that only one thread fetches the same credentials."""
KEPT = 32
"""How many S3 filesystems a process keeps: one for each access, and those of earlier credentials."""
PLAIN_PATH = re.compile(r"(/[\w=:%|-][\w=:%|.-]*)+")
"""A local path that pyarrow accepts unchanged: parsing a path with pyarrow takes as long as opening a file."""


def absolute(uri: str) -> str:
    """Return a local path as an absolute one; return URIs unchanged."""
    return uri if "://" in uri else str(Path(uri).absolute())


def open_files(uri: str, access: Access) -> tuple[Files, str]:
    """Return the filesystem of a URI, and the URI's path there.

    :raises ConfigurationError: if no filesystem supports the URI.
    """
    if not uri:
        raise ValueError("the path is empty, which would be the current directory")
    if PLAIN_PATH.fullmatch(uri):
        return _local_files(), uri
    if (path := bucket_path(uri)) is not None:
        with _OPENING:
            return _s3_objects(access.of(uri) or AwsSettings(), path.partition("/")[0]), path
    try:
        filesystem, path = fs.FileSystem.from_uri(absolute(uri))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigurationError(f"{uri!r} is not a path that can be written: {error}") from None
    return Files(filesystem), path


@cache
def _local_files() -> Files:
    return Files(fs.LocalFileSystem())


@cache
def _s3_session(aws: AwsSettings) -> Any:
    return aws_session(aws)


@cache
def _s3_client(aws: AwsSettings) -> Any:
    client = aws_client(aws, "s3", session=_s3_session(aws))
    # boto3 would follow a bucket into another region, but pyarrow and the table libraries would not.
    client.meta.events.register_last("before-endpoint-resolution.s3", _stay_in_region)
    return client


def _stay_in_region(context: dict[str, Any], **_: object) -> None:
    context.get("s3_redirect", {})["redirected"] = True


@cache
def _s3_objects(aws: AwsSettings, bucket: str) -> BucketFiles:
    """Return the objects of a bucket; the same instance for every call."""
    session = _s3_session(aws)
    credentials = session.get_credentials()
    if credentials is None:
        raise ConfigurationError(
            f"bucket {bucket!r}: no connection has keys for it, and the AWS default credential chain finds none on "
            "this machine; set 'aws_conn_id' of the dataset in this bucket, or give the machine an instance role"
        )
    region = aws.region or session.region_name or fs.resolve_s3_region(bucket)
    client = _s3_client(aws)
    settings = replace(aws, region=region, endpoint_url=_other_endpoint(client.meta.endpoint_url))

    def present() -> fs.FileSystem:
        frozen = credentials.get_frozen_credentials()  # fetches them again if they are about to expire
        return _s3_filesystem(settings, frozen.access_key, frozen.secret_key, frozen.token)

    return BucketFiles(client, present)


def _other_endpoint(url: str) -> str | None:
    """Return the endpoint to which boto3 sends its requests; None if it is an endpoint of AWS."""
    return None if re.search(r"\.amazonaws\.com(\.cn)?$", urlsplit(url).hostname or "") else url


@lru_cache(KEPT)
def _s3_filesystem(aws: AwsSettings, key: str, secret: str, token: str | None) -> fs.S3FileSystem:
    scheme, _, endpoint = (aws.endpoint_url or "https://").partition("://")
    return fs.S3FileSystem(
        access_key=key,
        secret_key=secret,
        session_token=token,
        region=aws.region,
        scheme=scheme,
        endpoint_override=endpoint.rstrip("/") or None,
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=aws.max_attempts),
        allow_delayed_open=True,  # a small file is one PUT
    )
