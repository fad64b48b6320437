"""Finding the files of a point-in-time export; the export is started if none is given."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.sources.dynamodb.calls import DynamoDBCalls
from airflow_provider_coordination.sources.dynamodb_export.files import FORMAT, ExportedFile, ExportStorage
from airflow_provider_coordination.sources.dynamodb_export.settings import DynamoDBExport
from airflow_provider_coordination.sources.progress import PartitionProgress
from airflow_provider_coordination.sources.s3.locations import object_uri

log = logging.getLogger(__name__)

KIND = "dynamodb_export"
PAGE_PARTITIONS = 100
REMEMBERED_EXPORTS = 100
"""How many of the latest started exports are kept in a source's state."""


class ExportFailedError(SourceError):
    """DynamoDB could not finish an export."""


class ExportSupplier:
    """Makes partitions of the files of an export; a `Supplier`.

    An export takes minutes to hours. Until it is finished there are no partitions: run the supplier again. A started
    export is stored in the source's state, and is not started again. Its partitions keep their first number of files,
    even if `files_per_partition` changes. Otherwise files would be in two partitions, or in none.

    :param settings: of the source.
    :param view: of the source.
    """

    def __init__(self, settings: DynamoDBExport, view: SourceView) -> None:
        self._settings = settings
        self._view = view
        self.calls = DynamoDBCalls(settings.aws, f"export {settings.export_arn or settings.table_arn!r}")

    def __call__(self, state: Mapping[str, Any]) -> Iterator[Page]:
        """Yield the files, several to a partition.

        :raises ConfigurationError: if the export or table does not exist, or the user must fix something else.
        :raises ExportFailedError: if DynamoDB could not finish the export.
        :raises SourceUnavailableError: if a service is unavailable.
        """
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
            page[_key(export, number)] = _progress(files)
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
        token = hashlib.sha256(f"{self._view.source_identifier}\n{self._name}".encode()).hexdigest()[:36]
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
        first = self._view.get(_key(export, 0))
        if first is None:
            return self._settings.files_per_partition
        return len(PartitionProgress.from_mapping(first.progress).items)

    def _packed(self, location: str, files_each: int) -> Iterator[list[ExportedFile]]:
        """Yield the files that have items, `files_each` at a time."""
        files = [file for file in ExportStorage(self._settings.s3).files(location) if file.records]
        log.info("export %s: %d files with %d items", location, len(files), sum(file.records for file in files))
        for start in range(0, len(files), files_each):
            yield files[start : start + files_each]


def _key(export: str, number: int) -> str:
    return f"{export}/{number}"


def _progress(files: list[ExportedFile]) -> dict[str, Any]:
    items = tuple({"uri": file.uri, "version": file.version, "size": file.records} for file in files)
    return PartitionProgress(kind=KIND, items=items).to_mapping()
