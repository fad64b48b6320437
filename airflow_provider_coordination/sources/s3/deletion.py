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
from airflow_provider_coordination.sources.s3.objects import ListedObject
from airflow_provider_coordination.sources.s3.settings import S3Objects

log = logging.getLogger(__name__)

THREADS = 16


class DeletionError(SourceError):
    """Delivered objects could not be deleted; the next scan tries again."""


class Deletion:
    """Deletes the objects of partitions that are delivered.

    An object is deleted only if it is the one that was read: the same version, modified at the same time. If S3
    supports conditional deletes, it ensures this itself. Otherwise an object that is uploaded in the moment between
    the check and the deletion is lost.

    :param settings: of the source.
    :param client: returns an existing client of S3.
    """

    def __init__(self, settings: S3Objects, client: Callable[[], Any] | None = None) -> None:
        self._settings = settings
        self._client = client or (lambda: s3_client(settings.aws))

    def delivered(self, items: Sequence[Item]) -> None:
        """Delete the objects of these items, if the settings say so; see `Finishing.delivered`.

        :raises DeletionError: if some could not be deleted; the others are.
        """
        if not self._settings.delete_on_success or not items:
            return
        objects = [ListedObject.from_item(item) for item in items]
        client = self._client() if any(is_s3(each.uri) for each in objects) else None

        def delete(listed: ListedObject) -> CoordinationError | None:
            try:
                deleted = delete_s3(client, listed) if is_s3(listed.uri) else delete_file(listed)
                if not deleted:
                    log.info("%s is not deleted: it was uploaded again since it was read", listed.uri)
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


def delete_s3(client: Any, listed: ListedObject) -> bool:
    """Delete an object of S3; return whether it still was the listed version.

    :raises ItemGoneError: if it does not exist, or was replaced.
    """
    bucket, key = bucket_and_key(listed.uri)
    with object_errors(listed.uri, "delete", "s3:GetObject and s3:DeleteObject"):
        head = client.head_object(Bucket=bucket, Key=key)
        if head["ETag"] != listed.version or int(head["LastModified"].timestamp()) != int(listed.modified.timestamp()):
            return False
        client.delete_object(Bucket=bucket, Key=key, IfMatch=listed.version)
    return True


def delete_file(listed: ListedObject) -> bool:
    """Delete a file; return whether it still was the listed version.

    :raises ItemGoneError: if it does not exist.
    """
    from pyarrow import fs

    filesystem, path, _ = open_filesystem(listed.uri)
    with object_errors(listed.uri, "delete", "deleting"):
        info = filesystem.get_file_info(path)
        if info.type != fs.FileType.File:
            raise ItemGoneError(f"{listed.uri} does not exist any more")
        if file_version(info) != listed.version:
            return False
        filesystem.delete_file(path)
    return True
