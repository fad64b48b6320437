"""The fields of Druid's Kinesis supervisor spec and their translations. The manual has the same table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.sources.kinesis.pacing import (
    MAX_RECORDS_PER_READ,
    MIN_READS_PER_SECOND,
    READS_PER_SECOND,
)
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON
from airflow_provider_coordination.spark.job_settings import MAX_SAVED_PARSE_EXCEPTIONS
from airflow_provider_coordination.supervisor.druid.rows import (
    DruidField,
    FieldOutcome,
    UnsupportedFieldError,
    copied,
    manual,
    milliseconds,
    numeric,
    translated,
    whole_number,
    yes_or_no,
)

READS = "reads.kinesis"
ANY_NUMBER = 2_147_483_647
"""Druid's value for no limit."""
DEFAULT_REGION = "us-east-1"
"""Druid's region if a spec names none."""
AWS_ENDPOINT = re.compile(r"(?:https?://)?kinesis\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/?")
AWS_CONNECTION = "the extra of the AWS connection"
LAG_BASED = "lagBased"


def _kinesis(value: Any) -> None:
    if value != "kinesis":
        raise UnsupportedFieldError(f"it is {value!r}; only supervisors of type 'kinesis' can be translated")


def _initial_position(value: Any) -> str:
    return TRIM_HORIZON if yes_or_no(value) else LATEST


def _records_per_read(value: Any) -> int:
    return min(whole_number(value), MAX_RECORDS_PER_READ)


def _reads_per_second(value: Any) -> float | None:
    delay = whole_number(value)
    if delay > 1000 / MIN_READS_PER_SECOND:
        raise UnsupportedFieldError(
            f"it is {value!r}, and a shard is read every {1 / MIN_READS_PER_SECOND:g} s at least; give at most "
            f"{1000 / MIN_READS_PER_SECOND:.0f}"
        )
    return min(READS_PER_SECOND, round(1000 / delay, 3)) if delay > 0 else None


def _instant(value: Any) -> str:
    """Return an instant. In Druid, an instant without a time zone is in UTC."""
    try:
        instant = datetime.fromisoformat(str(value))
    except ValueError:
        raise UnsupportedFieldError(f"it must be an ISO 8601 date and time; got {value!r}") from None
    return format_instant(instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC))


def _bounds(value: Any) -> dict[str, Any]:
    given = value if isinstance(value, Mapping) else {}
    start, end = given.get("startSequenceNumbers"), given.get("endSequenceNumbers")
    if not isinstance(start, Mapping) or not isinstance(end, Mapping) or not start or set(start) != set(end):
        raise UnsupportedFieldError(
            "'startSequenceNumbers' and 'endSequenceNumbers' must name the same shards, at least one"
        )
    return {"start": dict(start), "end": dict(end)}


def _idle_after(value: Any) -> str | None:
    given = value if isinstance(value, Mapping) else {}
    return milliseconds(given.get("inactiveAfterMillis", IDLE_AFTER_MS)) if yes_or_no(given.get("enabled")) else None


def _number_of_exceptions(value: Any) -> int | None:
    number = whole_number(value)
    return None if number >= ANY_NUMBER else number


def _saved_exceptions(value: Any) -> int:
    return min(whole_number(value), MAX_SAVED_PARSE_EXCEPTIONS)


def _no_exceptions(value: Any) -> int | None:
    return 0 if yes_or_no(value) else None


def _aggregate(value: Any) -> str:
    lowered = str(value).lower()
    if lowered not in ("max", "sum", "average"):
        raise UnsupportedFieldError(f"it must be MAX, SUM or AVERAGE; got {value!r}")
    return lowered


def _lag_based(value: Any) -> None:
    if value != LAG_BASED:
        raise UnsupportedFieldError(
            f"it is {value!r}; only scaling by lag is supported: use {LAG_BASED!r} with its thresholds"
        )


TOP = (
    translated("type", READS, "The kind of source. Only `kinesis` can be translated.", _kinesis),
    manual(
        "suspended",
        "the command suspend --new-source",
        "Suspension is not part of a spec: suspend the source before you submit the spec.",
    ),
)
"""The top-level fields except `dataSchema`, `ioConfig` and `tuningConfig`."""

DATA_SCHEMA = (
    copied("dataSchema.dataSource", "source", "Also names the folder in `lake`."),
    translated(
        "dataSchema.timestampSpec",
        "schema",
        "A `NOT NULL` column, `supervise.event_time`: BIGINT for `millis` and `nano`, else TIMESTAMP with "
        "`time_formats`, which also has Joda's patterns. `missingValue` becomes `computed`.",
    ),
    translated(
        "dataSchema.dimensionsSpec",
        "schema",
        "One column each. `string`, `json` and unknown types become STRING, `long` becomes BIGINT, `auto` its "
        "`castToType`. Discovered dimensions need a transform.",
    ),
    translated(
        "dataSchema.metricsSpec",
        "schema",
        "The input columns of the metrics and of their filters. Records are not rolled up: aggregate in queries.",
    ),
    translated(
        "dataSchema.transformSpec",
        "writes[0].parquet.where",
        "`filter` becomes a predicate, and `transforms` become `computed`. Expressions without an exact equal need a "
        "transform.",
    ),
    translated(
        "dataSchema.parser", "schema", "An earlier form of `inputFormat`, `timestampSpec` and `dimensionsSpec`."
    ),
)

IO_CONFIG = (
    translated("ioConfig.type", READS, "The kind of source. Only `kinesis` can be translated.", _kinesis),
    copied("ioConfig.stream", f"{READS}.streams"),
    translated(
        "ioConfig.inputFormat",
        "schema",
        "`json`, `csv`, `tsv`, `avro_stream`, `avro_ocf` and `protobuf` become `payload`. `kinesis`: its "
        "`valueFormat`; its other columns are `partition_key` and `approximate_arrival_timestamp`. Other formats need "
        "a transform.",
    ),
    translated(
        "ioConfig.endpoint",
        f"{READS}.region_name",
        "The region of an AWS endpoint. Set another endpoint manually: `endpoint_url` in the AWS connection's extra.",
    ),
    copied(
        "ioConfig.region",
        f"{READS}.region_name",
        "The same, without an AWS endpoint. `us-east-1` without region and endpoint, as in Druid.",
    ),
    translated(
        "ioConfig.recordsPerFetch",
        f"{READS}.records_per_read",
        f"The same, at most {MAX_RECORDS_PER_READ}.",
        _records_per_read,
    ),
    translated(
        "ioConfig.fetchDelayMillis",
        f"{READS}.reads_per_second",
        f"Reads a second with this delay between two, at most the default of {READS_PER_SECOND:g}.",
        _reads_per_second,
    ),
    copied("ioConfig.taskCount", "supervise.task_count", value=whole_number),
    translated(
        "ioConfig.autoScalerConfig",
        "supervise.auto_scale",
        "Field by field, if it is enabled. Then `taskCount` is not applicable, as in Druid.",
    ),
    copied("ioConfig.stopTaskCount", "supervise.stop_task_count", value=whole_number),
    copied("ioConfig.taskDuration", "supervise.task_duration"),
    copied("ioConfig.startDelay", "supervise.start_delay"),
    copied("ioConfig.period", "supervise.period"),
    translated(
        "ioConfig.useEarliestSequenceNumber",
        f"{READS}.initial_position",
        "`TRIM_HORIZON` if true, `LATEST` if false or omitted. `LATEST` is Druid's default but not this package's.",
        _initial_position,
    ),
    copied(
        "ioConfig.completionTimeout",
        "supervise.completion_timeout",
        "The same. The default is PT30M, as in Druid's code.",
    ),
    copied("ioConfig.lateMessageRejectionPeriod", "supervise.late_message_rejection_period"),
    translated(
        "ioConfig.lateMessageRejectionStartDateTime",
        "supervise.late_message_rejection_start",
        "The same instant, in UTC if it has no time zone.",
        _instant,
    ),
    copied("ioConfig.earlyMessageRejectionPeriod", "supervise.early_message_rejection_period"),
    manual("ioConfig.awsAccessKeyId", AWS_CONNECTION, "The login of the connection."),
    manual("ioConfig.awsSecretAccessKey", AWS_CONNECTION, "The password of the connection."),
    manual("ioConfig.awsAssumedRoleArn", AWS_CONNECTION, "`role_arn`."),
    manual("ioConfig.awsExternalId", AWS_CONNECTION, "`ExternalId` in `assume_role_kwargs`."),
    translated(
        "ioConfig.idleConfig",
        "supervise.idle_after",
        "`inactiveAfterMillis`, if `enabled`. Druid itself ignores it for Kinesis.",
        _idle_after,
    ),
    translated(
        "ioConfig.boundedStreamConfig",
        f"{READS}.bounds",
        "Start and end of each shard, both inclusive. `terminateOnCompletion` becomes `supervise.terminate_when_done`, "
        "`taskCount` becomes `supervise.task_count`.",
        _bounds,
    ),
)

IDLE_AFTER_MS = 600_000
"""Druid's default of `inactiveAfterMillis`."""
AUTO_SCALE = "ioConfig.autoScalerConfig"
OF_AUTO_SCALE = "supervise.auto_scale"
AUTO_SCALER_CONFIG = (
    translated(f"{AUTO_SCALE}.autoScalerStrategy", OF_AUTO_SCALE, "Only `lagBased`.", _lag_based),
    copied(f"{AUTO_SCALE}.taskCountMin", f"{OF_AUTO_SCALE}.task_count_min", value=whole_number),
    copied(f"{AUTO_SCALE}.taskCountMax", f"{OF_AUTO_SCALE}.task_count_max", value=whole_number),
    copied(f"{AUTO_SCALE}.taskCountStart", f"{OF_AUTO_SCALE}.task_count_start", value=whole_number),
    *(
        translated(f"{AUTO_SCALE}.{druid}", f"{OF_AUTO_SCALE}.{ours}", "Milliseconds as a duration.", milliseconds)
        for druid, ours in (
            ("lagCollectionIntervalMillis", "lag_collection_interval"),
            ("lagCollectionRangeMillis", "lag_collection_range"),
            ("scaleActionStartDelayMillis", "scale_action_start_delay"),
            ("scaleActionPeriodMillis", "scale_action_period"),
            ("minTriggerScaleActionFrequencyMillis", "min_trigger_scale_action_frequency"),
            ("scaleOutThreshold", "scale_out_threshold"),
            ("scaleInThreshold", "scale_in_threshold"),
        )
    ),
    copied(
        f"{AUTO_SCALE}.triggerScaleOutFractionThreshold", f"{OF_AUTO_SCALE}.trigger_scale_out_fraction", value=numeric
    ),
    copied(
        f"{AUTO_SCALE}.triggerScaleInFractionThreshold", f"{OF_AUTO_SCALE}.trigger_scale_in_fraction", value=numeric
    ),
    copied(f"{AUTO_SCALE}.scaleOutStep", f"{OF_AUTO_SCALE}.scale_out_step", value=whole_number),
    copied(f"{AUTO_SCALE}.scaleInStep", f"{OF_AUTO_SCALE}.scale_in_step", value=whole_number),
    translated(
        f"{AUTO_SCALE}.lagAggregate",
        f"{OF_AUTO_SCALE}.lag_aggregate",
        "In lower case. `sum` if omitted, which is Druid's default but not this package's.",
        _aggregate,
    ),
)

TUNING_CONFIG = (
    translated(
        "tuningConfig.reportParseExceptions",
        "bad_records.max_parse_exceptions",
        "0 if true, regardless of `maxParseExceptions`.",
        _no_exceptions,
    ),
    translated(
        "tuningConfig.maxParseExceptions",
        "bad_records.max_parse_exceptions",
        "The same. 2147483647 means no limit.",
        _number_of_exceptions,
    ),
    translated(
        "tuningConfig.maxSavedParseExceptions",
        "bad_records.max_saved_parse_exceptions",
        f"The same, at most {MAX_SAVED_PARSE_EXCEPTIONS}: the dead letters have all bad records.",
        _saved_exceptions,
    ),
    translated(
        "tuningConfig.resetOffsetAutomatically",
        f"{READS}.on_data_loss",
        "If true, `earliest` or, without `useEarliestSequenceNumber`, `latest`: both record the lost range. `fail` if "
        "false, which parks the shard. `earliest` with `boundedStreamConfig`.",
    ),
    translated(
        "tuningConfig.repartitionTransitionDuration",
        f"{READS}.repartition_transition_duration",
        "How long after the end of a shard its children are first read. Jobs are not stopped for it.",
        lambda value: value,
    ),
)

NOT_APPLICABLE: Mapping[str, Mapping[str, str]] = {
    "": {
        "A source has one supervisor, named by `source`.": "id",
        "It holds settings of Druid's tasks, such as locks and priorities.": "context",
    },
    "dataSchema": {
        "There are no segments: each batch is a file. `partition_by` of a dataset makes folders.": ("granularitySpec"),
        "Projections pre-aggregate segments: create such tables from the dataset.": "projections",
    },
    "ioConfig": {
        "Leases assign each shard to one job. If a job dies, the others take over its shards.": "replicas",
        "As `replicas`.": "serverPriorityToReplicas",
        "It computes Druid's lag metrics. For scaling, see `lag_aggregate`.": "lagAggregator",
        "Aggregated records of the Kinesis Producer Library are always expanded.": "deaggregate",
        "As `idleConfig`, for Kafka.": "enableIdleBehaviour idleSupervisorForStreamIdleMillis",
        "It belongs to Druid's batch ingestion. Batches are always appended.": "appendToExisting",
    },
    AUTO_SCALE: {
        "If it is false or omitted, the spec has no `auto_scale`.": "enableTaskAutoScaler",
        "Druid ignores this earlier name of `triggerScaleOutFractionThreshold`.": "triggerScaleOutThresholdFrequency",
        "Druid ignores this earlier name of `triggerScaleInFractionThreshold`.": "triggerScaleInThresholdFrequency",
        "Jobs hand over one by one, each once its successor runs.": "stopTaskCountRatio",
        "Leases distribute shards evenly for any number of jobs.": "useNearestFactorScaling",
    },
    "tuningConfig": {
        "It repeats `kinesis`.": "type",
        "Records are written to files as they arrive. A slot holds at most `rounds.slot_memory_bytes`.": (
            "maxRowsInMemory maxBytesInMemory skipBytesInMemoryOverheadCheck"
        ),
        "There are no segments: each batch is a file of at most `rounds.max_batch_bytes`.": (
            "maxRowsPerSegment maxTotalRows"
        ),
        "Every round commits its records a few seconds after they were read.": "intermediateHandoffPeriod",
        "There are no intermediate files: landed files are complete.": (
            "intermediatePersistPeriod maxPendingPersists numPersistThreads basePersistDirectory"
        ),
        "Files are Parquet, compressed with Zstandard; `compression` of a dataset sets another codec.": (
            "indexSpec indexSpecForIntermediatePersists"
        ),
        "It concerns the internals of Druid's segments.": (
            "segmentWriteOutMediumFactory appendableIndexSpec buildV9Directly maxColumnsToMerge messageGapStatsEnabled"
        ),
        "Bad records are written to the dead letters. Payloads are never logged.": "logParseExceptions",
        "Committed records are visible at once.": "handoffConditionTimeout",
        "There are no locks on intervals: each shard is leased to one job.": "releaseLocksOnHandoff",
        "Reads detect lost records; see `on_data_loss`.": "skipSequenceNumberAvailabilityCheck",
        "One thread of the triggerer polls all sources.": "workerThreads chatThreads",
        "Jobs report to the store; the supervisor does not call them.": "chatRetries chatAsync httpTimeout",
        "Jobs continue without the supervisor, and the next one finds them.": "shutdownTimeout",
        "Jobs report their lag while they read; nothing is fetched.": "offsetFetchPeriod",
        "All shards of a slot share one buffer, `rounds.slot_memory_bytes`.": (
            "recordBufferSize recordBufferSizeBytes recordBufferOfferTimeout recordBufferFullWait"
        ),
        "A slot reads all its shards at the same time, within `rounds.slot_memory_bytes`.": "fetchThreads",
        "`LATEST` is resolved once to an instant.": "fetchSequenceNumberTimeout",
        "A read takes everything that Kinesis returns.": "maxRecordsPerPoll maxBytesPerPoll",
        "It is the only mode.": "useListShards",
        "An empty closed shard is read to its end with one call.": "skipIgnorableShards",
    },
}
"""The fields that have no meaning in this package, as words, by the reason, in each section of a spec."""

FIELDS: tuple[DruidField, ...] = (
    *TOP,
    *DATA_SCHEMA,
    *IO_CONFIG,
    *AUTO_SCALER_CONFIG,
    *TUNING_CONFIG,
    *(
        DruidField(name=f"{section}.{name}".lstrip("."), outcome=FieldOutcome.NOT_APPLICABLE, note=note)
        for section, notes in NOT_APPLICABLE.items()
        for note, names in notes.items()
        for name in names.split()
    ),
)
"""All known fields."""
