"""The manifests and data files of a point-in-time export, in S3 or copied to another location."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.items import ItemGoneError, ItemUnreadableError
from airflow_provider_coordination.sources.s3.errors import object_errors
from airflow_provider_coordination.sources.s3.listing import file_version
from airflow_provider_coordination.sources.s3.locations import (
    bucket_and_key,
    is_s3,
    object_uri,
    open_filesystem,
    s3_client,
)
from airflow_provider_coordination.sources.s3.object_streams import FileObject, ReadableObject, S3Object

SUMMARY = "manifest-summary.json"
FILES = "manifest-files.json"
FULL = "FULL_EXPORT"
FORMAT = "DYNAMODB_JSON"


@dataclass(frozen=True, kw_only=True)
class ExportedFile:
    """A file of an export.

    :param uri: its location.
    :param version: the ETag in the manifest, without quotes; empty if the manifest has none, or the export was copied:
        a copy has its own ETag.
    :param records: the number of its items.
    """

    uri: str
    version: str
    records: int


class ExportStorage:
    """Reads the files of exports. Threads may share it.

    :param aws: the settings for S3.
    """

    def __init__(self, aws: AwsSettings) -> None:
        self._aws = aws

    @cached_property
    def _client(self) -> Any:
        return s3_client(self._aws)

    def open(self, uri: str, version: str = "") -> ReadableObject:
        """Return a file in its present version.

        :param version: the ETag that it must have; empty for any.
        :raises ItemGoneError: if it does not exist.
        :raises ItemUnreadableError: if it has another ETag.
        :raises SourceUnavailableError: if trying again may help.
        :raises ConfigurationError: if the user must fix something, such as a permission.
        """
        if not is_s3(uri):
            filesystem, path, _ = open_filesystem(uri)
            with object_errors(uri, "read", "reading"):
                info = filesystem.get_file_info(path)
            if not info.is_file:
                raise ItemGoneError(f"{uri} does not exist any more")
            return FileObject(filesystem, path, uri, info.size, file_version(info))
        bucket, key = bucket_and_key(uri)
        with object_errors(uri, "read", "s3:GetObject"):
            head = self._client.head_object(Bucket=bucket, Key=key)
        if version and head["ETag"].strip('"') != version:
            raise ItemUnreadableError(
                f"{uri} is not the file that the export wrote: its ETag is {head['ETag']}, not {version}; restore it, "
                "or export again"
            )
        return S3Object(self._client, uri, head["ContentLength"], head["ETag"])

    def files(self, location: str) -> Iterator[ExportedFile]:
        """Yield the data files of a finished export.

        :param location: its folder.
        :raises ConfigurationError: if the folder has no finished export, its manifests are damaged, or its format is
            not supported.
        :raises SourceUnavailableError: if trying again may help.
        """
        folder = location.rstrip("/")
        bucket = self._summary(folder).get("s3Bucket")
        for line in self._text(f"{folder}/{FILES}").splitlines():
            if line.strip():
                try:
                    file = _data_file(folder, bucket, json.loads(line))
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    raise _damaged(f"{folder}/{FILES}", error) from error
                yield file

    def _summary(self, folder: str) -> Mapping[str, Any]:
        try:
            summary: Mapping[str, Any] = dict(json.loads(self._text(f"{folder}/{SUMMARY}")))
        except (TypeError, ValueError) as error:
            raise _damaged(f"{folder}/{SUMMARY}", error) from error
        for name, wanted in (("outputFormat", FORMAT), ("exportType", FULL)):
            if summary.get(name, wanted) != wanted:
                raise ConfigurationError(
                    f"export {folder}: its {name} is {summary[name]!r}, and only {wanted!r} is supported; export again"
                )
        return summary

    def _text(self, uri: str) -> str:
        try:
            source = self.open(uri)
            content = source.file().read()
        except ItemGoneError:
            raise ConfigurationError(
                f"{uri} does not exist; wait until the export is finished, or set 'location' to the folder "
                f"with {SUMMARY}, such as s3://bucket/prefix/AWSDynamoDB/<export id>"
            ) from None
        return bytes(content).decode()


def _data_file(folder: str, bucket: object, entry: Mapping[str, Any]) -> ExportedFile:
    """Return a data file of a manifest: at the manifest's location, unless the export was copied.

    :param folder: the folder of the manifest.
    :param bucket: the bucket that the export was written to.
    """
    key, records = str(entry["dataFileS3Key"]), int(entry.get("itemCount", 0))
    written = object_uri(str(bucket), key)
    if is_s3(folder) and written.startswith(f"{object_uri(*bucket_and_key(folder))}/"):
        return ExportedFile(uri=written, version=str(entry.get("etag") or "").strip('"'), records=records)
    return ExportedFile(uri=f"{folder}/data/{key.rpartition('/')[2]}", version="", records=records)


def _damaged(uri: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"{uri} is not a manifest of an export: {type(error).__name__}: {error}; restore it")
