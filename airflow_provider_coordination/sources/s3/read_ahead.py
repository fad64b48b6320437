"""Fetching the small objects of a partition while earlier ones are parsed.

A request takes milliseconds of waiting, and a partition may have hundreds of objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from airflow_provider_coordination.sources.items import Item, ItemReader, ReadPage

THREADS = 8
AHEAD_OBJECTS = 32
AHEAD_BYTES = 8 * 2**20
"""The maximum number of bytes that are fetched and not parsed yet."""
SMALL_BYTES = 2**20
"""A larger object is read while it is parsed."""


class ReadAhead:
    """Reads the objects of a partition in order, fetching ahead: an `ItemReader`, and a context manager.

    :param reader: reads the objects that are not fetched ahead.
    :param items: the objects that will be read, in this order.
    :param fetch: returns an object's bytes.
    :param parse: yields the records of an object that was fetched, from a position on.
    """

    def __init__(
        self,
        reader: ItemReader,
        items: Iterable[Item],
        fetch: Callable[[Item], bytes],
        parse: Callable[[Item, bytes, str], Iterator[ReadPage]],
    ) -> None:
        self._reader = reader
        self._fetch = fetch
        self._parse = parse
        self._left = deque(filter(_is_small, items))
        self._fetching: deque[tuple[Item, Future[bytes]]] = deque()
        self._bytes = 0
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="fetch")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Fetch nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def origin(self, item: Item) -> str:
        """See `ItemReader.origin`."""
        return self._reader.origin(item)

    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        """See `ItemReader.read`."""
        self._top_up()
        if not _is_small(item):
            return self._reader.read(item, position)
        while self._fetching:
            found, fetched = self._fetching.popleft()
            self._bytes -= found["size"]
            if found is item:
                self._top_up()
                return self._parsed(item, fetched, position)
        return self._reader.read(item, position)

    def _parsed(self, item: Item, fetched: Future[bytes], position: str) -> Iterator[ReadPage]:
        yield from self._parse(item, fetched.result(), position)

    def _top_up(self) -> None:
        while self._left and len(self._fetching) < AHEAD_OBJECTS and self._bytes < AHEAD_BYTES:
            item = self._left.popleft()
            self._fetching.append((item, self._pool.submit(self._fetch, item)))
            self._bytes += item["size"]


def _is_small(item: Item) -> bool:
    return bool(item["size"] <= SMALL_BYTES)
