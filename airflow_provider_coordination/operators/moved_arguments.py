"""Errors for arguments that were renamed, moved or left out; they name the current argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NEW_OWNERS: Mapping[str, Sequence[str]] = {
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
"""The settings classes that arguments moved to without a change of name."""
MOVED: Mapping[str, str] = {
    **{name: owner.format(name=repr(name)) for owner, names in NEW_OWNERS.items() for name in names},
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
"""The current argument, by the previous name."""


def check_arguments(callee: str, unknown: Mapping[str, Any], **required: object) -> None:
    """Check that no moved argument is given, and that every required one is.

    Airflow checks for missing arguments before a constructor runs. Its error would hide that an argument has moved. So
    the required arguments have None as their default.

    :param callee: the class or function that has the arguments.
    :param unknown: the arguments that the callee does not know, by name.
    :param required: the required arguments: `reads`, `writes`.
    :raises TypeError: if arguments have moved; it names each one and its current name.
    :raises ValueError: if an argument is missing.
    """
    if moved := [f"{name!r} is now {MOVED[name]}" for name in unknown if name in MOVED]:
        raise TypeError(f"{callee}: {'; '.join(moved)}")
    for name, value in required.items():
        if value is None:
            raise ValueError(
                f"{callee}: field {name!r} is missing; give one of the classes of "
                f"airflow_provider_coordination.operators.{name}"
            )
