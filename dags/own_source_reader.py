"""The reader of the files of `own_source`. Spark imports it on machines without Airflow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.sources.items import ItemGoneError, ItemReader, ReadPage

LINES_PER_PAGE = 10_000


@dataclass(frozen=True)
class EventFiles(ItemReader):
    """Reads files with one JSON event a line, with the fields `user` and `action`.

    :param root: the folder of the files.
    """

    root: str

    def read(self, item: Mapping[str, Any], position: str) -> Iterator[ReadPage]:
        """Yield the events of a file, page by page. The position is the offset of the next line, in bytes."""
        path = Path(self.root, item["key"])
        try:
            file = path.open("rb")
        except FileNotFoundError:
            raise ItemGoneError(f"{path} no longer exists") from None
        with file:
            file.seek(int(position or 0))
            while lines := file.readlines(LINES_PER_PAGE * 100):
                events = [json.loads(line) for line in lines]
                columns = {name: [event.get(name) for event in events] for name in ("user", "action")}
                yield ReadPage(
                    pa.table(columns, pa.schema([("user", pa.string()), ("action", pa.string())])), str(file.tell())
                )

    def origin(self, item: Mapping[str, Any]) -> str:
        """Return the origin of a record for its column `_origin`."""
        return str(Path(self.root, item["key"]))
