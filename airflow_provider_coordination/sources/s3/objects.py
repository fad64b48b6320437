"""An object as a listing tells of it, and the item that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.partition import format_instant, parse_instant
from airflow_provider_coordination.sources.items import Item
from airflow_provider_coordination.sources.s3.locations import folder_of


@dataclass(frozen=True, slots=True)
class Found:
    """An object, or a file, that a listing found.

    :param uri: where it is; see `places`.
    :param size: how many bytes it has, as stored.
    :param version: what changes with its content: in S3 its ETag, quotes included; of a file its time and size.
    :param modified: when it was last modified (aware, UTC). S3 tells whole seconds, and of an object that was uploaded
        in parts when that began.
    """

    uri: str
    size: int
    version: str
    modified: datetime

    @property
    def name(self) -> str:
        """What a partition claims of it: an object that is uploaded again with other content is another one."""
        return f"{self.uri}@{self.version}"

    @property
    def folder(self) -> str:
        """The folder that it is in."""
        return folder_of(self.uri)

    def to_item(self, written: Callable[[datetime], str] = format_instant) -> dict[str, Any]:
        """Return it as an item of a partition.

        :param written: what writes its instant, if one is at hand that remembers those that it wrote.
        """
        return {
            "uri": self.uri,
            "size": self.size,
            "version": self.version,
            "modified": written(self.modified),
        }

    @classmethod
    def from_item(cls, item: Item) -> Found:
        """Return the object that an item of a partition names."""
        return cls(item["uri"], item["size"], item["version"], parse_instant(item["modified"]))
