"""Deleting objects once they are delivered: never one that was not read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError, SourceError
from airflow_provider_coordination.sources.items import Item, ItemGoneError
from airflow_provider_coordination.sources.s3.errors import object_errors
from airflow_provider_coordination.sources.s3.listing import file_version
from airflow_provider_coordination.sources.s3.locations import bucket_and_key, is_s3, open_filesystem, s3_client
from airflow_provider_coordination.sources.s3.objects import Found
from airflow_provider_coordination.sources.s3.settings import S3Settings

log = logging.getLogger(__name__)

THREADS = 16


class DeletionError(SourceError):
    """Objects that are delivered could not be deleted; the next scan tries again."""


class Deletion:
    """Deletes the objects of partitions that are delivered.

    An object is deleted if it is the one that was read: the same version, modified at the same time. Where S3 knows
    conditional deletes it makes sure of that itself; elsewhere an object that is uploaded between the look and the
    deletion, a moment later, is lost.

    :param settings: of the source.
    :param client: returns a client of S3, where there is one already.
    """

    def __init__(self, settings: S3Settings, client: Callable[[], Any] | None = None) -> None:
        self._settings = settings
        self._client = client or (lambda: s3_client(settings.aws))

    def delivered(self, items: Sequence[Item]) -> None:
        """Delete the objects of these items, if the settings say so; see `Finishing.delivered`.

        :raises DeletionError: if some could not be deleted; the others are.
        """
        if not self._settings.delete_on_success or not items:
            return
        objects = [Found.from_item(item) for item in items]
        client = self._client() if any(is_s3(each.uri) for each in objects) else None

        def delete(found: Found) -> CoordinationError | None:
            try:
                deleted = delete_s3(client, found) if is_s3(found.uri) else delete_file(found)
                if not deleted:
                    log.info("%s stays: it was uploaded again since it was read", found.uri)
            except ItemGoneError:
                pass
            except (ConfigurationError, SourceError) as error:
                return error
            return None

        with ThreadPoolExecutor(min(THREADS, len(objects)), thread_name_prefix="deletion") as pool:
            errors = [error for error in pool.map(delete, objects) if error is not None]
        if errors:
            raise DeletionError(
                f"{len(errors)} of {len(objects)} delivered objects could not be deleted; the first: {errors[0]}"
            ) from errors[0]


def delete_s3(client: Any, found: Found) -> bool:
    """Delete an object of S3; return whether it was the one that was found.

    :raises ItemGoneError: if there is none, or another one by now.
    """
    bucket, key = bucket_and_key(found.uri)
    with object_errors(found.uri, "delete", "s3:GetObject and s3:DeleteObject"):
        head = client.head_object(Bucket=bucket, Key=key)
        if head["ETag"] != found.version or int(head["LastModified"].timestamp()) != int(found.modified.timestamp()):
            return False
        client.delete_object(Bucket=bucket, Key=key, IfMatch=found.version)
    return True


def delete_file(found: Found) -> bool:
    """Delete a file; return whether it was the one that was found.

    :raises ItemGoneError: if there is none.
    """
    from pyarrow import fs

    filesystem, path, _ = open_filesystem(found.uri)
    with object_errors(found.uri, "delete", "deleting"):
        info = filesystem.get_file_info(path)
        if info.type != fs.FileType.File:
            raise ItemGoneError(f"{found.uri} does not exist any more")
        if file_version(info) != found.version:
            return False
        filesystem.delete_file(path)
    return True
