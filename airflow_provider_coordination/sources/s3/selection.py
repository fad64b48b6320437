"""Which of the listed objects are selected."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow_provider_coordination.sources.s3.globs import Globs
from airflow_provider_coordination.sources.s3.listing import Listing
from airflow_provider_coordination.sources.s3.objects import ListedObject
from airflow_provider_coordination.sources.s3.settings import S3Objects


@dataclass(frozen=True)
class Window:
    """The modification times that are selected: at `start` or later, before `end`; adjacent windows share no object.

    :param start: aware; None for no bound.
    :param end: aware; None for no bound.
    """

    start: datetime | None = None
    end: datetime | None = None

    @classmethod
    def of(cls, settings: S3Objects, began: datetime) -> Window:
        """Return the window of a scan.

        :param began: when the scan started; `range` is counted back from it.
        """
        return cls(began - settings.range if settings.range else settings.start_time, settings.end_time)

    def holds(self, instant: datetime) -> bool:
        """Return whether the window contains an instant."""
        return (self.start is None or instant >= self.start) and (self.end is None or instant < self.end)


class Selection:
    """Selects the objects of one path for a scan.

    :param settings: of the source.
    :param listing: of the path.
    :param window: of the scan.
    """

    def __init__(self, settings: S3Objects, listing: Listing, window: Window) -> None:
        self._include = Globs(settings.include) if settings.include else None
        self._exclude = Globs(settings.exclude) if settings.exclude else None
        self._suffixes = settings.exclude_suffixes
        self._hidden = settings.hidden
        self._marker = f"/{settings.wait_for}" if settings.wait_for else None
        self._folder_depth = settings.folder_depth
        self._by_folder = settings.wait_for is not None
        self._listing = listing
        self._window = window

    def takes(self, listed: ListedObject) -> bool:
        """Return whether an object is selected."""
        if not self._window.holds(listed.modified):
            return False
        uri = listed.uri
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

    def group(self, listed: ListedObject) -> str:
        """Return the folder whose objects may share a partition with an object; empty for all."""
        if self._by_folder:
            return listed.folder
        if self._folder_depth is None:
            return ""
        folders = listed.uri[len(self._listing.base) :].split("/")[:-1]
        return self._listing.base + "/".join(folders[: self._folder_depth])


def _is_hidden(below: str) -> bool:
    """Return whether a name, or one of its folders, begins with `_` or `.`; Hive's `_partition=value` is not hidden.

    :param below: the part of the URI below the path.
    """
    if "_" not in below and below.find(".") == below.rfind(".") and "/." not in below and not below.startswith("."):
        return False  # the usual case: no underscore, and the only dot is before the ending
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in below.split("/"))
