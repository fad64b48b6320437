"""OpenLineage names of datasets that several kinds of sources share.

The naming conventions do not cover some services: their datasets are named by the service's host, like the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_coordination.sources.kinds import DatasetName

HADOOP_SCHEMES = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names for the scheme of S3."""


def file_dataset(path: str) -> DatasetName:
    """Return the name of a folder or file: `s3://bucket` and the key, or `file` and the path.

    :param path: a path, or a URI of S3, HDFS or another filesystem.
    """
    parts = urlsplit(path)
    if not parts.scheme or parts.scheme == "file":
        return DatasetName("file", parts.path.rstrip("/") or "/")
    scheme = HADOOP_SCHEMES.get(parts.scheme, parts.scheme)
    # The user part of a URI may include a password.
    namespace = f"{scheme}://{parts.netloc.rpartition('@')[2]}"
    name = parts.path.rstrip("/") if scheme in ("hdfs", "viewfs") else parts.path.strip("/")
    return DatasetName(namespace, name or "/")


def host_of(url: str | None) -> str | None:
    """Return the host of a URL, with its port; None without a URL."""
    return urlsplit(url).netloc.rpartition("@")[2] if url else None


def aws_host(service: str, aws: Mapping[str, Any]) -> str:
    """Return the host of an AWS service.

    :param service: the service's name in its host name.
    :param aws: the AWS settings, as a JSON object.
    """
    region = aws.get("region")
    given = host_of(aws.get("endpoint_url"))
    return given or (f"{service}.{region}.amazonaws.com" if region else f"{service}.amazonaws.com")
