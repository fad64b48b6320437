"""A job's access to S3: the AWS settings of its sinks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_provider_coordination.aws import AwsSettings


@dataclass(frozen=True)
class Access:
    """How a job reaches its locations on S3. It contains secrets, so it travels only in the settings and to workers.

    :param locations: the location of each sink that is on S3 or has a connection, with the connection's AWS settings;
        None for a sink without a connection.
    """

    locations: tuple[tuple[str, AwsSettings | None], ...] = ()

    def of(self, uri: str) -> AwsSettings | None:
        """Return the AWS settings for a URI: those of the sink whose folder holds it, or of the first in its bucket.

        For a bucket without a sink, they are those of the first sink that has a connection.

        :returns: None for the AWS default credential chain.
        """
        path = bucket_path(uri)
        if path is None:
            return None
        on_s3 = [(root, aws) for location, aws in self.locations if (root := bucket_path(location)) is not None]
        around = [(root, aws) for root, aws in on_s3 if f"{path}/".startswith(f"{root}/")]
        beside = [(root, aws) for root, aws in on_s3 if root.partition("/")[0] == path.partition("/")[0]]
        if around:
            return max(around, key=lambda each: len(each[0]))[1]
        if beside:
            return beside[0][1]
        return next((aws for _, aws in self.locations if aws is not None), None)


def combined_access(*accesses: Access) -> Access:
    """Return the combination of several accesses; the first one that names a location decides."""
    return Access(tuple(dict(reversed([each for access in accesses for each in access.locations])).items()))


DEFAULT_ACCESS = Access()
"""Without a connection."""


def is_s3(uri: str) -> bool:
    """Return whether a URI is on S3."""
    return bucket_path(uri) is not None


def bucket_path(uri: str) -> str | None:
    """Return the bucket and key of a URI on S3; None if it is not on S3."""
    found = re.fullmatch(r"s3[an]?://([^/?]+/?[^?]*)", uri)
    return None if found is None else re.sub("/+", "/", found[1]).rstrip("/")
