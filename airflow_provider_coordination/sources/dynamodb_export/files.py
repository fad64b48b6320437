"""The files of point-in-time exports, in S3 or copied elsewhere: starting an export, finding and reading its files."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.sources.dynamodb.calls import DynamoDBCalls, plain_json
from airflow_provider_coordination.sources.dynamodb_export.kind import DynamoDBExport
from airflow_provider_coordination.sources.item_kind import ItemSupplier
from airflow_provider_coordination.sources.items import Item, ItemGoneError, ItemReader, ItemUnreadableError, ReadPage
from airflow_provider_coordination.sources.s3.kind import AUTO
from airflow_provider_coordination.sources.s3.object_streams import FileObject, ReadableObject, S3Object
from airflow_provider_coordination.sources.s3.objects import (
    bucket_and_key,
    file_version,
    is_s3,
    object_errors,
    object_uri,
    open_filesystem,
    s3_client,
)
from airflow_provider_coordination.sources.s3.text_formats import DATA, PAGE_BYTES, JsonDataFormat

log = logging.getLogger(__name__)

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
            return FileObject(uri, filesystem, path, info.size, file_version(info))
        bucket, key = bucket_and_key(uri)
        with object_errors(uri, "read", "s3:GetObject"):
            head = self._client.head_object(Bucket=bucket, Key=key)
        if version and head["ETag"].strip('"') != version:
            raise ItemUnreadableError(
                f"{uri} is not the file that the export wrote: its ETag is {head['ETag']}, not {version}; restore it, "
                "or export again"
            )
        return S3Object(uri, self._client, head["ContentLength"], head["ETag"])

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


PAGE_PARTITIONS = 100
REMEMBERED_EXPORTS = 100
"""How many of the latest started exports are kept in a source's state."""


class ExportFailedError(SourceError):
    """DynamoDB could not finish an export."""


class ExportSupplier(ItemSupplier[DynamoDBExport]):
    """Makes partitions of the files of an export; a `Supplier`.

    An export takes minutes to hours. Until it is finished there are no partitions: run the supplier again. A started
    export is stored in the source's state, and is not started again. Its partitions keep their first number of files,
    even if `files_per_partition` changes. Otherwise files would be in two partitions, or in none.
    """

    @cached_property
    def calls(self) -> DynamoDBCalls:
        """The calls to DynamoDB."""
        return DynamoDBCalls(self._settings.aws, f"export {self._settings.export_arn or self._settings.table_arn!r}")

    @override
    def __call__(self, state: Mapping[str, Any]) -> Iterator[Page]:
        location = self._settings.location
        if location is None:
            started: dict[str, str] = state.get("exports", {})
            arn = self._settings.export_arn or started.get(self._name)
            if arn is None:
                arn = self._start()
                kept = dict(list(started.items())[-REMEMBERED_EXPORTS + 1 :])
                yield Page({}, state={**state, "exports": {**kept, self._name: arn}})
            location = self._finished(arn)
        if location is None:
            return
        export, page = location.rstrip("/").rpartition("/")[2], dict[str, dict[str, Any]]()
        for number, files in enumerate(self._packed(location, self._files_each(export))):
            page[_key(export, number)] = self.first_progress(
                *({"uri": file.uri, "version": file.version, "size": file.records} for file in files)
            )
            if len(page) == PAGE_PARTITIONS:
                yield Page(page)
                page = {}
        yield Page(page)

    @property
    def _name(self) -> str:
        """The name of the started export in the state."""
        return f"{self._settings.table_arn}/{self._settings.export}".rstrip("/")

    def _start(self) -> str:
        """Start the export; if the request is sent twice within eight hours, DynamoDB starts one export."""
        settings = self._settings
        token = hashlib.sha256(f"{self._coordinator.view.source_identifier}\n{self._name}".encode()).hexdigest()[:36]
        request = {
            "TableArn": settings.table_arn,
            "S3Bucket": settings.bucket,
            "S3Prefix": settings.prefix,
            "S3BucketOwner": settings.bucket_owner,
            "S3SseAlgorithm": "KMS" if settings.kms_key_id else None,
            "S3SseKmsKeyId": settings.kms_key_id,
            "ExportFormat": FORMAT,
            "ClientToken": token,
        }
        response = self.calls("export_table_to_point_in_time", **{k: v for k, v in request.items() if v is not None})
        arn = str(response["ExportDescription"]["ExportArn"])
        log.info("export started: %s", arn)
        return arn

    def _finished(self, arn: str) -> str | None:
        """Return the folder of an export; None if it is not finished."""
        export = self.calls("describe_export", ExportArn=arn)["ExportDescription"]
        status = export["ExportStatus"]
        if status == "IN_PROGRESS":
            log.info("export %s is not finished yet; run the supplier again later", arn)
            return None
        if status != "COMPLETED":
            why = " ".join(filter(None, (export.get("FailureCode"), export.get("FailureMessage"))))
            raise ExportFailedError(
                f"export {arn} is {status}: {why or 'no reason is given'}; fix the cause, and start another "
                "export with another name in 'export'"
            )
        key = "/".join(filter(None, (export.get("S3Prefix"), "AWSDynamoDB", arn.rpartition("/")[2])))
        return object_uri(export["S3Bucket"], key)

    def _files_each(self, export: str) -> int:
        """Return the number of files of a partition, from the first partition or from the settings."""
        return len(self.items_of(_key(export, 0))) or self._settings.files_per_partition

    def _packed(self, location: str, files_each: int) -> Iterator[list[ExportedFile]]:
        """Yield the files that have items, `files_each` at a time."""
        files = [file for file in ExportStorage(self._settings.s3).files(location) if file.records]
        log.info("export %s: %d files with %d items", location, len(files), sum(file.records for file in files))
        for start in range(0, len(files), files_each):
            yield files[start : start + files_each]


def _key(export: str, number: int) -> str:
    return f"{export}/{number}"


RECORD_SCHEMA = pa.schema([pa.field(DATA, pa.string())])
"""`data` is the item as plain JSON."""


class ExportReader(ItemReader):
    """Reads data files, page by page.

    A position is a number of uncompressed bytes, as for JSON lines in S3: a file is decompressed from its start
    when reading continues.

    :param settings: of the source.
    :param page_bytes: the approximate size of a page in uncompressed bytes.
    """

    reads_at_once: int | None = None

    def __init__(self, settings: DynamoDBExport, page_bytes: int = PAGE_BYTES) -> None:
        self._settings = settings
        self._lines = JsonDataFormat(AUTO, page_bytes)
        self._page_bytes = page_bytes

    @classmethod
    @override
    def from_mapping(cls, settings: Mapping[str, Any]) -> ExportReader:
        return cls(DynamoDBExport.from_mapping(settings))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the client."""
        return ExportReader, (self._settings, self._page_bytes)

    @cached_property
    def _storage(self) -> ExportStorage:
        return ExportStorage(self._settings.s3)

    @override
    def columns(self, spark: object) -> pa.Schema:
        return RECORD_SCHEMA

    @override
    def origin(self, item: Item) -> str:
        return str(item["uri"])

    @override
    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        source = self._storage.open(item["uri"], item["version"])
        for page in self._lines.pages(source, position):
            items = [_item(line) for line in page.records.column(DATA).to_pylist()]
            yield ReadPage(pa.table([pa.array(items, pa.string())], schema=RECORD_SCHEMA), page.position)


def _item(line: bytes) -> str:
    try:
        attributes = json.loads(line)["Item"]
    except (KeyError, TypeError, ValueError):
        raise ItemUnreadableError(
            f'a line is not an item in DynamoDB\'s JSON, as {{"Item": {{...}}}}; it begins with {line[:60]!r}'
        ) from None
    return plain_json(attributes)
