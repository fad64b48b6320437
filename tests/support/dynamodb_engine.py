"""Runs MiniStack's DynamoDB, corrected where it differs from AWS's documentation. `DynamoDbServer` starts this file.

- A read consumes half a unit for each 4 KB of the items that it evaluated, a consistent one twice that. MiniStack
  reports half a unit, or one, for a read of any size.
- A query or a scan refuses a filter that does not parse, also where it reads nothing. MiniStack parses it for an item.

It logs each scan, for `DynamoDbServer.scans`. It answers one request after the other, so what a request read can wait
in a variable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import ceil
from typing import Any

from ministack.app import main
from ministack.services import dynamodb as engine

READ_BYTES = 4096

_paginate = engine._paginate_evaluated_items
_add_consumed_capacity = engine._add_consumed_capacity
_read_bytes = 0


def paginate_evaluated_items(
    items: list[dict[str, Any]], limit: int | None, table: dict[str, Any], index_name: str | None = None
) -> tuple[list[dict[str, Any]], bool]:
    """Note how many bytes a page of a query or a scan reads."""
    global _read_bytes
    page, more = _paginate(items, limit, table, index_name)
    entries = (engine._apply_index_projection(item, table, index_name) if index_name else item for item in page)
    _read_bytes = sum(map(engine._item_size_bytes, entries))
    return page, more


def add_consumed_capacity(
    result: dict[str, Any], data: dict[str, Any], table_name: str, write: bool = False, **options: Any
) -> None:
    """Report what a read consumed by its bytes."""
    global _read_bytes
    read, _read_bytes = _read_bytes, 0
    _add_consumed_capacity(result, data, table_name, write=write, **options)
    if write or "ConsumedCapacity" not in result:
        return
    if "Key" in data:
        item = engine._get_item_by_key(engine._tables[table_name], data["Key"])
        read = engine._item_size_bytes(item) if item else 0
    _multiply(result["ConsumedCapacity"], max(1, ceil(read / READ_BYTES)))


def parsing_filter(read: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """Return a query or a scan that parses its filter whatever it reads."""

    def answer(data: dict[str, Any]) -> Any:
        found = read(data)
        if found[0] == 200 and "FilterExpression" in data:
            names, values = data.get("ExpressionAttributeNames", {}), data.get("ExpressionAttributeValues", {})
            try:
                engine._evaluate_condition(data["FilterExpression"], {}, values, names, slot="FilterExpression")
            except ValueError as error:
                return engine.error_response_json("ValidationException", str(error), 400)
        return found

    return answer


def _multiply(capacity: dict[str, Any], units: int) -> None:
    for name, value in capacity.items():
        if name == "CapacityUnits":
            capacity[name] = value * units
        elif isinstance(value, dict):
            _multiply(value, units)


def logged_scan(read: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """Return a scan that is logged."""

    def answer(data: dict[str, Any]) -> Any:
        sys.stderr.write(f"scan of {data.get('TableName')}\n")
        return read(data)

    return answer


engine._paginate_evaluated_items = paginate_evaluated_items
engine._add_consumed_capacity = add_consumed_capacity
engine._query = parsing_filter(engine._query)
engine._scan = logged_scan(parsing_filter(engine._scan))

if __name__ == "__main__":
    main()
