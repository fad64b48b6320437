"""Reports a job to its task's outlets: an asset event with what was delivered, and checkpoints for display.

Both serve display and the DAGs that an event starts. Nothing reads them back: only the store knows how far a partition
is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.sdk import Asset, Context

log = logging.getLogger(__name__)

RANGES_LISTED = 20
"""How many partitions an event lists with their range, and how many checkpoints are mirrored."""


StreamOf = Callable[[str], str | None]
"""Returns the name of the endless stream that a partition key belongs to; see `SourceKind.stream_of`."""


def no_stream(partition_key: str) -> None:
    """Return None: the partition belongs to no stream, because its kind is not known."""
    return


def report_to_outlets(
    context: Context, outlets: Sequence[Any], source: str, result: Mapping[str, Any], stream_of: StreamOf
) -> None:
    """Add what a job delivered to the events of a task's outlets, and mirror its checkpoints.

    A job that delivered nothing adds zero counts to the event that Airflow emits for every successful task.

    :param context: the task's context.
    :param outlets: the task's outlets; those that are not assets, such as aliases, are skipped.
    :param source: the source's name.
    :param result: the task's result: the job's summary, with its `owner`.
    :param stream_of: the stream lookup of the kind of source.
    """
    assets = [outlet for outlet in outlets if isinstance(outlet, Asset)]
    if not assets:
        return
    report = delivered_range(source, result, stream_of)
    for asset in assets:
        context["outlet_events"][asset].extra.update(report)
    _mirror(context, assets, source, result, stream_of)


def delivered_range(source: str, result: Mapping[str, Any], stream_of: StreamOf) -> dict[str, Any]:
    """Return what an asset event reports about a job; its size is bounded.

    :param source: the source's name.
    :param result: see `report_to_outlets`.
    :param stream_of: the stream lookup of the kind of source.
    """
    ranges: Mapping[str, Mapping[str, Any]] = result.get("ranges") or {}
    arrivals = [
        partition_range["last_arrival"] for partition_range in ranges.values() if partition_range.get("last_arrival")
    ]
    streams: dict[str, str] = {}
    for key, partition_range in ranges.items():
        if (stream := stream_of(key)) is not None and (arrived := partition_range.get("last_arrival")):
            streams[stream] = max(arrived, streams.get(stream, ""))
    return {
        "source": source,
        "owner": result.get("owner"),
        "partitions": result.get("partitions_delivered", 0),
        "batches": result.get("batches_delivered", 0),
        "records": result.get("records_delivered", 0),
        "bytes": result.get("bytes_delivered", 0),
        "last_arrival": max(arrivals, default=None),
        "streams": streams,
        "ranges": {key: dict(partition_range) for key, partition_range in list(ranges.items())[:RANGES_LISTED]},
    }


def _mirror(
    context: Context, assets: Sequence[Asset], source: str, result: Mapping[str, Any], stream_of: StreamOf
) -> None:
    """Store the checkpoints of endless partitions with the assets. Finite partitions have no useful checkpoint."""
    checkpoints = {
        key: {
            "source": source,
            "checkpoint": found["to"],
            "last_arrival": found.get("last_arrival") or "",
            "owner": result.get("owner") or "",
        }
        for key, found in (result.get("ranges") or {}).items()
        if stream_of(key) is not None
    }
    stores: Any = context.get("asset_state_store")
    if not checkpoints or stores is None:
        return
    try:
        for asset in assets:
            for key, checkpoint in list(checkpoints.items())[:RANGES_LISTED]:
                stores[asset].set(key, checkpoint)
    except Exception as error:  # the data is delivered, and the store has the checkpoints
        log.warning("checkpoints are not mirrored to Airflow: source=%s: %s: %s", source, type(error).__name__, error)
