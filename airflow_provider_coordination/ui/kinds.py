"""The routes and partition details that one kind of source adds to the pages and to the HTTP API."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Protocol

from fastapi import APIRouter

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.registry import import_attribute
from airflow_provider_coordination.sources.kinds import KINDS, get_kind, known_kind

log = logging.getLogger(__name__)


class KindPages(Protocol):
    """The pages and routes of one kind of source."""

    @property
    def names(self) -> Sequence[str]:
        """The pages that its sources have in addition to those of every source."""
        ...

    def router(self) -> APIRouter:
        """Return its routes."""
        ...

    def details(self, partition: Partition, now: datetime) -> Mapping[str, Any]:
        """Return the details that only partitions of this kind have.

        :param partition: the partition.
        :param now: the current time (aware).
        """
        ...


def routers_of_kinds() -> Iterator[APIRouter]:
    """Yield the routes of every kind that has some. A kind that cannot be imported is logged and skipped."""
    for name in KINDS.names():
        if (pages := pages_of(name)) is not None:
            yield pages.router()


@cache
def pages_of(kind: str) -> KindPages | None:
    """Return the pages of a kind of source; None if it has none, or the kind is unknown."""
    try:
        if kind not in KINDS.names() or (where := get_kind(kind).pages) is None:
            return None
        pages: KindPages = import_attribute(where, f"pages of the kind of source {kind!r}")
    except ConfigurationError as error:
        log.error("%s", error)
        return None
    return pages


def pages_named(kind: str | None) -> list[str]:
    """Return the names of the pages that sources of a kind have in addition to those of every source."""
    pages = None if kind is None else pages_of(kind)
    return [] if pages is None else list(pages.names)


def details_of(partition: Partition, now: datetime) -> dict[str, Any]:
    """Return the details of a partition that its kind adds."""
    kind = known_kind(partition)
    pages = None if kind is None else pages_of(kind.name)
    return {} if pages is None else dict(pages.details(partition, now))
