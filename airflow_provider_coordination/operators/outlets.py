"""What a task tells of its outlets: an asset event that says what was delivered, and checkpoints for people to see.

Both are for display and for the DAGs that an event starts. The store alone knows how far a partition is; nothing of
this is ever read back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.sdk import Asset, Context

log = logging.getLogger(__name__)

RANGES_LISTED = 20
"""Of how many partitions an event tells the range, and of how many the checkpoint is mirrored."""


StreamOf = Callable[[str], str | None]
"""Returns the endless stream that a partition is a part of, by its key; see `SourceKind.stream_of`."""


def no_stream(partition_key: str) -> None:
    """Return that a partition is part of no stream, where its kind is not known."""
    return


def report_to_outlets(
    context: Context, outlets: Sequence[Any], source: str, result: Mapping[str, Any], stream_of: StreamOf
) -> None:
    """Put what a job delivered into the events of a task's outlets, and mirror its checkpoints.

    A job that delivered nothing leaves no trace but the event itself, which Airflow makes of every successful task.

    :param context: the task's.
    :param outlets: the task's; what is no asset, such as an alias, is passed over.
    :param source: the source's name.
    :param result: what the task returns: the job's summary, with its `owner`.
    :param stream_of: of the kind of source.
    """
    assets = [outlet for outlet in outlets if isinstance(outlet, Asset)]
    if not assets:
        return
    told = delivered_range(source, result, stream_of)
    for asset in assets:
        context["outlet_events"][asset].extra.update(told)
    _mirror(context, assets, source, result, stream_of)


def delivered_range(source: str, result: Mapping[str, Any], stream_of: StreamOf) -> dict[str, Any]:
    """Return what an asset event tells of a job: small, whatever the job did.

    :param source: the source's name.
    :param result: see `report_to_outlets`.
    :param stream_of: of the kind of source.
    """
    ranges: Mapping[str, Mapping[str, Any]] = result.get("ranges") or {}
    arrivals = [found["last_arrival"] for found in ranges.values() if found.get("last_arrival")]
    streams: dict[str, str] = {}
    for key, found in ranges.items():
        if (stream := stream_of(key)) is not None and (arrived := found.get("last_arrival")):
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
        "ranges": {key: dict(found) for key, found in list(ranges.items())[:RANGES_LISTED]},
    }


def _mirror(
    context: Context, assets: Sequence[Asset], source: str, result: Mapping[str, Any], stream_of: StreamOf
) -> None:
    """Leave the checkpoints of endless partitions with the assets. Others end, and have none worth looking at."""
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
    except Exception as error:  # whatever it is, the data is delivered, and the store has the truth
        log.warning("checkpoints are not mirrored to Airflow: %s: %s", type(error).__name__, error)
