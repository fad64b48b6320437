"""Arguments that were renamed or moved: an error that names where each is said now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

IN_STREAMS = "an argument of KinesisStreams, which is given as 'reads'"

MOVED: Mapping[str, str] = {
    "stream_name": "reads=KinesisStreams(...), from operators.reads.kinesis",
    "shard_id": "'partition_keys', beside reads=KinesisStreams(...)",
    **dict.fromkeys(
        (
            "initial_position",
            "stop_at",
            "on_data_loss",
            "filter_by_hash_range",
            "consumer_name",
            "shard_sync_interval",
            "repartition_transition_duration",
            "aws_conn_id",
            "region_name",
        ),
        IN_STREAMS,
    ),
}
"""Where what an argument said is said now, by the name that it had."""


def check_moved(of: str, given: Mapping[str, Any]) -> None:
    """Check that no argument is given that has moved.

    :param of: what the arguments are of.
    :param given: the arguments that are not known there, by name.
    :raises TypeError: naming all that have moved, and where they are said now.
    """
    if moved := [f"{name!r} is now {MOVED[name]}" for name in given if name in MOVED]:
        raise TypeError(f"{of}: {'; '.join(moved)}")
