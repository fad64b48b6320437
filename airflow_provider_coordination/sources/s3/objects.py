"""An object as a listing returns it, and the item that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.partition import format_instant, parse_instant
from airflow_provider_coordination.sources.items import Item
from airflow_provider_coordination.sources.s3.locations import folder_of


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object, or a file, that a listing found.

    :param uri: its location; see `locations`.
    :param size: its size in bytes, as stored.
    :param version: a text that changes with its content: in S3 its ETag, including quotes; for a file its time and
        size.
    :param modified: when it was last modified (aware, UTC). S3 reports whole seconds, and for an object that was
        uploaded in parts the start of the upload.
    """

    uri: str
    size: int
    version: str
    modified: datetime

    @property
    def name(self) -> str:
        """The name that a partition claims for it; an upload with other content gets another name."""
        return f"{self.uri}@{self.version}"

    @property
    def folder(self) -> str:
        """The folder that it is in."""
        return folder_of(self.uri)

    def to_item(self, written: Callable[[datetime], str] = format_instant) -> dict[str, Any]:
        """Return the item of a partition for it.

        :param written: formats its instant; pass a cached function to format many objects faster.
        """
        return {
            "uri": self.uri,
            "size": self.size,
            "version": self.version,
            "modified": written(self.modified),
        }

    @classmethod
    def from_item(cls, item: Item) -> ListedObject:
        """Return the object that an item of a partition names."""
        return cls(item["uri"], item["size"], item["version"], parse_instant(item["modified"]))
