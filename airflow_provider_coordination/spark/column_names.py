"""Names of columns: which ones readers cannot distinguish, as Spark, Delta and most databases ignore case; quotes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def similar_names(columns: pa.Schema) -> tuple[str, str] | None:
    """Return two names of columns, or of fields of one struct, that differ by case at most; None if there are none.

    The name of a field has the names around it before dots.
    """
    return _similar(list(columns), "")


def quoted(name: str) -> str:
    """Return the name of a column in Spark's syntax, which separates the names of nested fields by dots."""
    return f"`{name.replace('`', '``')}`"


def _similar(fields: Sequence[pa.Field], within: str) -> tuple[str, str] | None:
    seen: dict[str, str] = {}
    for field in fields:
        lower = field.name.lower()
        if lower in seen:
            return f"{within}{seen[lower]}", f"{within}{field.name}"
        seen[lower] = field.name
        below = [field.type.field(number) for number in range(field.type.num_fields)]
        if (found := _similar(below, f"{within}{field.name}.")) is not None:
            return found
    return None
