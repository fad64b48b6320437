"""A source of items in memory, with the content and the faults of each item."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.sources.items import Item, ItemReader, ReadPage


@dataclass
class FakeItem:
    """The content of one item.

    :param pages: its records, page by page: payloads, or whole tables.
    :param positions: whether each page, or which of them, give a position, so that reading may go on after it.
    :param error: raised instead of page number `fails_at`.
    :param fails_at: 0 for before the first page.
    """

    pages: Sequence[Sequence[str] | pa.Table]
    positions: bool | Collection[int] = False
    error: Exception | None = None
    fails_at: int = 0


@dataclass
class FakeSource(ItemReader):
    """Items by their names.

    :param down: raised by whoever reads anything.
    :param reads: what was read, as (name, position).
    """

    items: dict[str, FakeItem] = field(default_factory=dict)
    down: Exception | None = None
    reads: list[tuple[str, str]] = field(default_factory=list)

    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        self.reads.append((item["name"], position))
        if self.down is not None:
            raise self.down
        held = self.items[item["name"]]
        for number in range(int(position or 0), len(held.pages) + 1):
            if held.error is not None and number >= held.fails_at:
                raise held.error
            if number < len(held.pages):
                given = held.positions if isinstance(held.positions, bool) else number in held.positions
                at = str(number + 1) if given else ""
                yield ReadPage(records=table_of(held.pages[number]), position=at)

    def origin(self, item: Item) -> str:
        return f"memory:{item['name']}"


def table_of(page: Sequence[str] | pa.Table) -> pa.Table:
    return page if isinstance(page, pa.Table) else pa.table({"data": pa.array(page, pa.string())})


def named(*names: str) -> tuple[dict[str, Any], ...]:
    """Return items as a supplier writes them."""
    return tuple({"name": name} for name in names)
