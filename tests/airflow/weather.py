"""A custom source for tests that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_coordination.sources.own_source import Items

READER = "weather:Weather"


def towns(state: Mapping[str, Any]) -> Iterator[Any]:
    yield "oslo"
    yield ["rome", {"key": "cairo", "size": 3}]


def weather(**changes: Any) -> Items:
    return Items(**{"kind": "weather", "reader": READER, "supplier": towns} | changes)
