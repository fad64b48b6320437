"""How the places of a job on S3 are reached: the access that its sinks hold."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_provider_coordination.aws import AwsSettings


@dataclass(frozen=True)
class Access:
    """How a job reaches its places on S3. It holds secrets, and travels in the settings file and to workers alone.

    :param places: the location of each sink that is on S3 or has a connection, and what that holds; None for one
        that has none.
    """

    places: tuple[tuple[str, AwsSettings | None], ...] = ()

    def of(self, uri: str) -> AwsSettings | None:
        """Return how something is reached: as the sink that it lies with, or as the first one in its bucket.

        In a bucket without a sink, as the first sink that has a connection.

        :returns: None where the AWS SDK's default chain decides.
        """
        path = bucket_path(uri)
        if path is None:
            return None
        placed = [(place, aws) for location, aws in self.places if (place := bucket_path(location)) is not None]
        around = [(place, aws) for place, aws in placed if f"{path}/".startswith(f"{place}/")]
        beside = [(place, aws) for place, aws in placed if place.partition("/")[0] == path.partition("/")[0]]
        if around:
            return max(around, key=lambda found: len(found[0]))[1]
        if beside:
            return beside[0][1]
        return next((aws for _, aws in self.places if aws is not None), None)


def together(*accesses: Access) -> Access:
    """Return how the places of all of them are reached; the first that names a place decides."""
    return Access(tuple(dict(reversed([place for access in accesses for place in access.places])).items()))


DEFAULT_ACCESS = Access()
"""Without a connection."""


def is_s3(uri: str) -> bool:
    """Return whether something is on S3."""
    return bucket_path(uri) is not None


def bucket_path(uri: str) -> str | None:
    """Return bucket and key of something on S3; None if it is not there."""
    found = re.fullmatch(r"s3[an]?://([^/?]+/?[^?]*)", uri)
    return None if found is None else re.sub("/+", "/", found[1]).rstrip("/")
