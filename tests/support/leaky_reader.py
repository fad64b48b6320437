"""A reader by a third party whose errors contain its password."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.sources.items import (
    ItemReader,
    ItemUnreadableError,
    ReadPage,
    SourceUnavailableError,
)


class LeakyReader(ItemReader):
    """Reads one record of an item that is `good`; fails with the others.

    :param password: what it must not reveal.
    """

    def __init__(self, password: str) -> None:
        self.password = password

    def read(self, item: Mapping[str, Any], position: str) -> Iterator[ReadPage]:
        """Yield the record of an item."""
        if item["is"] == "away":
            raise SourceUnavailableError(f"login with {self.password} timed out")
        if item["is"] == "damaged":
            raise ItemUnreadableError(f"login with {self.password} found it damaged")
        yield ReadPage(pa.table({"id": ["one"]}))

    def origin(self, item: Mapping[str, Any]) -> str:
        """Return what the item is."""
        return str(item["is"])
