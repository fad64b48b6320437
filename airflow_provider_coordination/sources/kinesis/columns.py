"""The columns that every record of a shard has; those who ask for them need no pyarrow."""

from __future__ import annotations

RECORD_COLUMNS = (
    "stream",
    "shard_id",
    "sequence_number",
    "sub_sequence_number",
    "partition_key",
    "approximate_arrival_timestamp",
    "data",
    "_batch_id",
)
"""In the order in which they are landed; `docs/columns.md` describes them."""
