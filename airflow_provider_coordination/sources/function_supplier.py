"""Partitions of a user's own source: the values that a supplier function yields become pages of partitions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.sources.items import Item
from airflow_provider_coordination.sources.progress import PartitionProgress

PAGE_SIZE = 100
"""The number of single partitions that are created together."""
KEY = "key"

Supplied = str | Item | Page | Iterable[str | Item]
"""A value that a supplier yields: a key, an item, or a page of them; see `PartitionSupplier`."""


class PartitionSupplier(Protocol):
    """Finds the partitions of a user's own source.

    What it yields becomes partitions. Existing partitions do not change, so it may yield everything each time.
    One process of the fleet runs it at a time. It may be interrupted between any two pages.
    """

    def __call__(self, state: Mapping[str, Any], /) -> Iterable[Supplied]:
        """Yield what there is to read.

        - a text: the key of a partition with the one item `{"key": <the key>}`;
        - a mapping: the one item of a partition, for the reader. Its `key` names the partition; without `key`, a
          digest of the item does;
        - a list, or any iterable, of these: a page, which is created before the next value is requested;
        - a `Page`, for partitions of several items, and to store a state: its `partitions` map a key to an item or a
          list of items.

        :param state: the state of the last `Page` that had one, in this run or an earlier one; empty at first.
        """
        ...


def pages_of(supplied: Iterable[Supplied], kind: str | None) -> Generator[Page]:
    """Yield pages of partitions as a coordinator creates them.

    :param supplied: what a supplier yields.
    :param kind: the kind of source; None for partitions that no Spark job reads: their progress is then the item.
    :raises ConfigurationError: if a yielded value cannot become a partition.
    """
    waiting: dict[str, Mapping[str, Any]] = {}
    for each in supplied:
        if isinstance(each, str | Mapping):
            waiting.update([_partition(each, kind)])
            if len(waiting) < PAGE_SIZE:
                continue
        if waiting:
            yield Page(waiting)
            waiting = {}
        if isinstance(each, Page):
            yield replace(each, partitions={key: _progress(items, kind) for key, items in each.partitions.items()})
        elif not isinstance(each, str | Mapping):
            yield from _pages(each, kind)
    if waiting:
        yield Page(waiting)


def _pages(supplied: Any, kind: str | None) -> Iterator[Page]:
    if not isinstance(supplied, Iterable) or isinstance(supplied, bytes):
        raise _not_usable(supplied)
    page = dict(_partition(each, kind) for each in supplied)
    if page:
        yield Page(page)


def _partition(supplied: Any, kind: str | None) -> tuple[str, Mapping[str, Any]]:
    """Return the key and the first progress of a partition of one item."""
    if isinstance(supplied, str):
        return supplied, _progress({KEY: supplied} if kind else {}, kind)
    if not isinstance(supplied, Mapping):
        raise _not_usable(supplied)
    key = supplied.get(KEY)
    return (key if isinstance(key, str) and key else _digest(supplied)), _progress(supplied, kind)


def _progress(items: Any, kind: str | None) -> Mapping[str, Any]:
    """Return the first progress of a partition of these items."""
    if kind is None:
        if not isinstance(items, Mapping):
            raise _not_usable(items)
        return items
    several = items if isinstance(items, list | tuple) else (items,)
    if not several or not all(isinstance(item, Mapping) for item in several):
        raise _not_usable(items)
    return PartitionProgress(kind=kind, items=tuple(dict(item) for item in several)).to_mapping()


def _digest(item: Item) -> str:
    try:
        text = json.dumps(item, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"item {_shown(item)} cannot be written as JSON: {error}; use JSON values only"
        ) from None
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _not_usable(supplied: Any) -> ConfigurationError:
    return ConfigurationError(
        f"a supplier must yield keys, items (mappings), lists of these, or pages; got {_shown(supplied)} of type "
        f"{type(supplied).__name__}"
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
