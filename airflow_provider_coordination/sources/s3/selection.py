"""Which of the listed objects are taken."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow_provider_coordination.sources.s3.globs import Globs
from airflow_provider_coordination.sources.s3.listing import Listing
from airflow_provider_coordination.sources.s3.objects import Found
from airflow_provider_coordination.sources.s3.settings import S3Settings


@dataclass(frozen=True)
class Window:
    """When objects have to have been modified: at `start` or later, before `end`; so windows that meet share none.

    :param start: aware; None for no bound.
    :param end: aware; None for no bound.
    """

    start: datetime | None = None
    end: datetime | None = None

    @classmethod
    def of(cls, settings: S3Settings, began: datetime) -> Window:
        """Return the window of a scan.

        :param began: when the scan began, from which `range_seconds` is counted.
        """
        return cls(began - settings.range if settings.range else settings.start_time, settings.end_time)

    def holds(self, instant: datetime) -> bool:
        """Tell whether an instant is in it."""
        return (self.start is None or instant >= self.start) and (self.end is None or instant < self.end)


class Selection:
    """What a scan takes of one path.

    :param settings: of the source.
    :param listing: of the path.
    :param window: of the scan.
    """

    def __init__(self, settings: S3Settings, listing: Listing, window: Window) -> None:
        self._include = Globs(settings.include) if settings.include else None
        self._exclude = Globs(settings.exclude) if settings.exclude else None
        self._suffixes = settings.exclude_suffixes
        self._hidden = settings.hidden
        self._marker = f"/{settings.condition.object_name}" if settings.condition else None
        self._folder_depth = settings.folder_depth
        self._by_folder = settings.condition is not None
        self._listing = listing
        self._window = window

    def takes(self, found: Found) -> bool:
        """Tell whether an object is taken."""
        if not self._window.holds(found.modified):
            return False
        uri = found.uri
        if not self._hidden and _is_hidden(uri[len(self._listing.start) :]):
            return False
        if self._marker is not None and uri.endswith(self._marker):
            return False
        if self._suffixes and uri.endswith(self._suffixes):
            return False
        if self._include is None and self._exclude is None:
            return True
        name = uri[len(self._listing.base) :]
        if self._include is not None and not self._include.match(name):
            return False
        return self._exclude is None or not self._exclude.match(name)

    def group(self, found: Found) -> str:
        """Return the folder whose objects an object may share a partition with; empty for all."""
        if self._by_folder:
            return found.folder
        if self._folder_depth is None:
            return ""
        folders = found.uri[len(self._listing.base) :].split("/")[:-1]
        return self._listing.base + "/".join(folders[: self._folder_depth])


def _is_hidden(below: str) -> bool:
    """Tell whether a name, or a folder that it is in, begins with `_` or `.`; `_partition=value` is a folder of Hive's.

    :param below: the part of the URI that the path does not name.
    """
    if "_" not in below and below.find(".") == below.rfind(".") and "/." not in below and not below.startswith("."):
        return False  # the usual case: no underscore, and the only dot is before the ending
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in below.split("/"))
