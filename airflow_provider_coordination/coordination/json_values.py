"""Facts as JSON: frozen dataclasses, whose fields are the names that commands, HTTP and XComs show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, overload

from airflow_provider_coordination.coordination.partition import format_instant

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@overload
def json_of(value: DataclassInstance) -> dict[str, Any]: ...


@overload
def json_of(value: object) -> Any: ...


def json_of(value: Any) -> Any:
    """Return a value as JSON: dataclasses are objects, instants text, and durations numbers of seconds."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: json_of(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): json_of(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_of(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return format_instant(value)
    return value.total_seconds() if isinstance(value, timedelta) else value
