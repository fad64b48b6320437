"""Arguments that were renamed or moved, or are missing: an error that names where each is said now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PLACES: Mapping[str, Sequence[str]] = {
    "{name} of KinesisStreams, which is given as 'reads'": (
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
    "{name} of LeaseSettings, which is given as 'leases'": (
        "max_leases",
        "balance_by",
        "max_leases_to_steal",
        "handover_timeout",
    ),
    "{name} of RoundSettings, which is given as 'rounds'": (
        "max_batch_bytes",
        "until_caught_up",
        "max_duration",
        "max_idle_rounds",
    ),
    "{name} of BadRecordSettings, which is given as 'on_bad_records'": (
        "dead_letter_path",
        "max_parse_exceptions",
        "max_saved_parse_exceptions",
    ),
}
"""Where arguments have moved that kept their name."""
MOVED: Mapping[str, str] = {
    **{name: place.format(name=repr(name)) for place, names in PLACES.items() for name in names},
    "stream_name": "reads=KinesisStreams(...), from operators.reads.kinesis",
    "shard_id": "'partition_keys', beside reads=KinesisStreams(...)",
    "output_path": "writes=ParquetDataset(...), from operators.writes.parquet",
    "where": "'where' of ParquetDataset, which is given as 'writes'",
    "sinks": "a list of ParquetDataset, which is given as 'writes'",
    "round_seconds": "'round_duration' of RoundSettings, which is given as 'rounds'",
    "idle_seconds": "'idle_duration' of RoundSettings, which is given as 'rounds'",
    "acknowledge": "'by' of AcknowledgmentSettings, which is given as 'acknowledgments'",
    "acknowledgment_timeout": "'timeout' of AcknowledgmentSettings, which is given as 'acknowledgments'",
    "max_pending_batches": "'max_pending_batches' of AcknowledgmentSettings, which is given as 'acknowledgments'",
    "start_within": "'start_timeout'",
}
"""Where what an argument said is said now, by the name that it had."""


def check_arguments(of: str, others: Mapping[str, Any], **required: object) -> None:
    """Check that no argument is given that has moved, and that those are given which have to be.

    Airflow's own check of what is missing comes before a constructor runs, and would hide where it has moved: so these
    have None as their default.

    :param of: what the arguments are of.
    :param others: the arguments that are not known there, by name.
    :param required: `reads`, `writes`: those that have to be given.
    :raises TypeError: naming all that have moved, and where they are said now.
    :raises ValueError: naming what is missing.
    """
    if moved := [f"{name!r} is now {MOVED[name]}" for name in others if name in MOVED]:
        raise TypeError(f"{of}: {'; '.join(moved)}")
    for name, given in required.items():
        if given is None:
            raise ValueError(
                f"{of}: field {name!r} is missing; give one of the classes of "
                f"airflow_provider_coordination.operators.{name}"
            )
