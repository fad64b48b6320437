"""The names of the columns of a shard's records, in a module that does not import pyarrow."""

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
"""The columns in the order in which they are landed; `docs/columns.md` describes them."""
