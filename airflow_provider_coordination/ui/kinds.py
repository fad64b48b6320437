"""What kinds of sources add to the pages and to the HTTP API: routes of their own, and facts about a partition."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Protocol

from fastapi import APIRouter

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.inspection import kind_for_people
from airflow_provider_coordination.sources.kinds import KINDS, imported, kind_named

log = logging.getLogger(__name__)


class KindPages(Protocol):
    """What one kind of source adds."""

    @property
    def names(self) -> Sequence[str]:
        """The pages that its sources have beside those of every source."""
        ...

    def router(self) -> APIRouter:
        """Return its routes."""
        ...

    def details(self, partition: Partition, now: datetime) -> Mapping[str, Any]:
        """Return what is to be seen of a partition of this kind alone.

        :param now: the present instant (aware).
        """
        ...


def routers_of_kinds() -> Iterator[APIRouter]:
    """Yield the routes of every kind that has some; a kind that cannot be imported is logged, and has none."""
    for name in KINDS.names():
        if (pages := pages_of(name)) is not None:
            yield pages.router()


@cache
def pages_of(kind: str) -> KindPages | None:
    """Return what a kind of source adds; None if that is nothing, or the kind is not known here."""
    try:
        if kind not in KINDS.names() or (where := kind_named(kind).pages) is None:
            return None
        pages: KindPages = imported(where, f"kind of source {kind!r}: its pages")
    except ConfigurationError as error:
        log.error("%s", error)
        return None
    return pages


def pages_named(kind: str | None) -> list[str]:
    """Return the pages that sources of a kind have beside those of every source."""
    pages = None if kind is None else pages_of(kind)
    return [] if pages is None else list(pages.names)


def details_of(partition: Partition, now: datetime) -> dict[str, Any]:
    """Return what is to be seen of a partition because of its kind."""
    kind = kind_for_people(partition)
    pages = None if kind is None else pages_of(kind.name)
    return {} if pages is None else dict(pages.details(partition, now))
