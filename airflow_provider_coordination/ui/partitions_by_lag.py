"""The partitions of a source by their lag, page by page.

A store has no index of the lag, which follows from the progress of each partition. So each page reads the matching
partitions, and sorts them. The work for a page is bounded: a source with very many partitions is sorted in blocks, each
of which has the next keys.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.browsing import (
    EXAMINED_PER_PAGE,
    BrowsePosition,
    Filter,
    PageRequest,
)
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import (
    Partition,
    check_partition_key,
    format_instant,
    parse_instant,
)
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.sources.kinds import inspect_partition
from airflow_provider_coordination.ui.page_tokens import read_token, token_refused, write_token

ORDER = "lag"
READ_SECONDS = 2.0
"""How long the partitions of a block are read, at least until the store has returned some."""


@dataclass(frozen=True)
class LagCursor:
    """The start of the next page.

    :param begin: the key after which the page's block begins; None for the first block.
    :param end: the last key of the block; None if that is not known yet, or it is the last block.
    :param key: the last partition of the page before; None for the first page of the block.
    :param since: the instant (aware) since which that partition was behind, which stays the same while its lag grows;
        None if its lag is unknown.
    """

    begin: str | None = None
    end: str | None = None
    key: str | None = None
    since: datetime | None = None

    def write(self) -> str:
        """Return the cursor as opaque text."""
        since = None if self.since is None else format_instant(self.since)
        return write_token(ORDER, self.begin, self.end, self.key, since)

    @classmethod
    def read(cls, text: str | None) -> LagCursor:
        """Return the cursor that `write` wrote; without a text, the cursor of the first page.

        :raises HTTPException: if the text is no cursor, or belongs to another order.
        """
        if text is None:
            return cls()
        try:
            *keys, since = read_token(text, ORDER)
            begin, end, key = map(_key, keys)
            if since is not None and not isinstance(since, str):
                raise ValueError(since)
            return cls(begin, end, key, None if since is None else parse_instant(since))
        except (ConfigurationError, ValueError, TypeError, RecursionError):
            raise token_refused() from None


def page_by_lag(
    view: SourceView, wanted: Filter, cursor: LagCursor, *, descending: bool, limit: int
) -> tuple[list[Partition], LagCursor | None]:
    """Return a page of partitions by their lag, and the cursor of the next page; None if there is none.

    Partitions of the same lag are ordered by key. Those whose lag is unknown come last in both directions.

    :param view: the source, initialized.
    :param wanted: the filter.
    :param cursor: the start of the page.
    :param descending: whether the longest lag comes first.
    :param limit: the maximum number of partitions.
    """
    partitions, end = _block(view, wanted, cursor)
    now = view.clock.now()

    def place(since: datetime | None, key: str) -> tuple[bool, timedelta, str]:
        lag = timedelta(0) if since is None else now - since
        return since is None, -lag if descending else lag, key

    since = {each.partition_key: _since(each, now) for each in partitions}
    places = {key: place(instant, key) for key, instant in since.items()}
    partitions.sort(key=lambda each: places[each.partition_key])
    if cursor.key is not None:
        after = place(cursor.since, cursor.key)
        partitions = [each for each in partitions if places[each.partition_key] > after]
    page = partitions[:limit]
    if len(partitions) > limit:
        last = page[-1].partition_key
        return page, LagCursor(cursor.begin, end, last, since[last])
    return page, None if end is None else LagCursor(begin=end)


def _block(view: SourceView, wanted: Filter, cursor: LagCursor) -> tuple[list[Partition], str | None]:
    """Return the partitions of a block, and its last key; None if no block follows."""
    request = PageRequest(
        source_identifier=view.source_identifier,
        wanted=wanted,
        after=None if cursor.begin is None else BrowsePosition("", cursor.begin),
        limit=EXAMINED_PER_PAGE,
    )
    until = time.monotonic() + READ_SECONDS
    found: list[Partition] = []
    while True:
        browsed = view.store.browse(request)
        found += browsed.partitions
        if cursor.end is not None and (browsed.next is None or browsed.next.partition_key >= cursor.end):
            return [each for each in found if each.partition_key <= cursor.end], cursor.end
        if browsed.next is None:
            return found, None
        is_full = len(found) >= EXAMINED_PER_PAGE or time.monotonic() >= until
        if cursor.end is None and is_full:
            return found, browsed.next.partition_key
        request = replace(request, after=browsed.next)


def _since(partition: Partition, now: datetime) -> datetime | None:
    """Return the instant since which a partition is behind; None if its lag is unknown."""
    lag = inspect_partition(partition, now).lag
    return None if lag is None else now - timedelta(seconds=lag)


def _key(value: object) -> str | None:
    """Return a key from JSON.

    :raises ValueError: if it is no text.
    :raises ConfigurationError: if it is no key.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(value)
    check_partition_key(value)
    return value
