"""Processing conditions: a partition waits until a certain object exists in the folder of its objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow_provider_coordination.sources.items import Item, ItemGoneError, Wait
from airflow_provider_coordination.sources.s3.errors import object_errors
from airflow_provider_coordination.sources.s3.locations import (
    bucket_and_key,
    folder_of,
    is_s3,
    open_filesystem,
    s3_client,
)
from airflow_provider_coordination.sources.s3.settings import S3Objects


class Conditions:
    """Checks the processing condition of a partition's objects.

    :param settings: of the source.
    :param client: returns an existing client of S3.
    """

    def __init__(self, settings: S3Objects, client: Callable[[], Any] | None = None) -> None:
        self._settings = settings
        self._client = client or (lambda: s3_client(settings.aws))

    def waits_for(self, items: Sequence[Item]) -> Wait | None:
        """Return why these objects must wait; None if they may be read. See `Conditional.waits_for`.

        :raises ConfigurationError: if access is denied.
        :raises SourceUnavailableError: if the storage is unavailable.
        """
        settings = self._settings
        if settings.wait_for is None:
            return None
        for folder in sorted({folder_of(item["uri"]) for item in items}):
            marker = f"{folder}{settings.wait_for}"
            if not self._exists(marker):
                return Wait(
                    reason=f"{marker} does not exist yet",
                    retry_after=settings.wait_delay,
                    max_retries=settings.wait_retries,
                )
        return None

    def _exists(self, uri: str) -> bool:
        try:
            # Without permission to list the bucket, S3 reports "access denied" for an object that does not exist.
            with object_errors(uri, "look for it", "s3:GetObject and s3:ListBucket"):
                if is_s3(uri):
                    bucket, key = bucket_and_key(uri)
                    self._client().head_object(Bucket=bucket, Key=key)
                    return True
                filesystem, path, _ = open_filesystem(uri)
                return bool(filesystem.get_file_info(path).is_file)
        except ItemGoneError:
            return False
