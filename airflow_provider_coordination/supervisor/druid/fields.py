"""The fields of Druid's Kinesis supervisor spec, and what becomes of each here; the manual has the same table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON
from airflow_provider_coordination.spark.job_settings import MAX_SAVED_PARSE_EXCEPTIONS
from airflow_provider_coordination.supervisor.druid.rows import (
    DruidField,
    RefusedError,
    by_hand,
    milliseconds,
    taken_over,
    translated,
    without_meaning,
)

READS = "reads.kinesis"
ANY_NUMBER = 2_147_483_647
"""What Druid writes for any number."""
AWS_ENDPOINT = re.compile(r"(?:https?://)?kinesis\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/?")
AWS_CONNECTION = "the extra of the AWS connection"


def _kinesis(value: Any) -> None:
    if value != "kinesis":
        raise RefusedError(f"it is {value!r}; only supervisors of type 'kinesis' are translated")


def _initial_position(value: Any) -> str:
    return TRIM_HORIZON if _yes_or_no(value) else LATEST


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise RefusedError(f"it must be true or false; got {value!r}")
    return value


def _instant(value: Any) -> str:
    """Return an instant; Druid's are in UTC where they name no zone."""
    try:
        instant = datetime.fromisoformat(str(value))
    except ValueError:
        raise RefusedError(f"it must be an ISO 8601 date and time; got {value!r}") from None
    return format_instant(instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC))


def _bounds(value: Any) -> dict[str, Any]:
    given = value if isinstance(value, Mapping) else {}
    start, end = given.get("startSequenceNumbers"), given.get("endSequenceNumbers")
    if not isinstance(start, Mapping) or not isinstance(end, Mapping) or not start or set(start) != set(end):
        raise RefusedError("'startSequenceNumbers' and 'endSequenceNumbers' must name the same shards, at least one")
    return {"start": dict(start), "end": dict(end)}


def _number_of_exceptions(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RefusedError(f"it must be a whole number; got {value!r}")
    return None if value >= ANY_NUMBER else value


def _saved_exceptions(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RefusedError(f"it must be a whole number; got {value!r}")
    return min(value, MAX_SAVED_PARSE_EXCEPTIONS)


def _no_exceptions(value: Any) -> int | None:
    return 0 if _yes_or_no(value) else None


def _on_data_loss(value: Any) -> str:
    return "reset" if _yes_or_no(value) else "fail"


def _aggregate(value: Any) -> str:
    lowered = str(value).lower()
    if lowered not in ("max", "sum", "average"):
        raise RefusedError(f"it must be MAX, SUM or AVERAGE; got {value!r}")
    return lowered


def _lag_based(value: Any) -> None:
    if value != "lagBased":
        raise RefusedError(f"it is {value!r}; scaling here goes by lag: write 'lagBased', and its thresholds")


TOP = (
    translated("type", READS, "The kind of source; only `kinesis` is translated.", _kinesis),
    without_meaning("id", "A source has one supervisor: its name is `source`."),
    without_meaning("context", "It holds settings of Druid's tasks, such as locks and priorities."),
    by_hand(
        "suspended",
        "the verb suspend",
        "A source is suspended beside its spec: suspend it before you submit the spec.",
    ),
)
"""What is beside `dataSchema`, `ioConfig` and `tuningConfig`."""

DATA_SCHEMA = (
    taken_over("dataSchema.dataSource", "source", "Also the folder below `lake`."),
    translated(
        "dataSchema.timestampSpec",
        "schema",
        "A column, `NOT NULL` as records without a time are bad in Druid, and `supervise.event_time`. `iso` and "
        "`posix` are a TIMESTAMP, `millis` a BIGINT. `auto` counts as `iso`: write `millis` if producers send numbers. "
        "Other formats, and `missingValue`, need a transform.",
    ),
    translated(
        "dataSchema.dimensionsSpec",
        "schema",
        "A column each; `string`, `json` and `auto` are a STRING, `long` a BIGINT. Whatever no column names stays in "
        "the payload, the column `data`.",
    ),
    translated(
        "dataSchema.metricsSpec",
        "schema",
        "The columns that metrics are made of. Records are not rolled up: aggregate when you query, or in a transform.",
    ),
    without_meaning(
        "dataSchema.granularitySpec",
        "There are no segments: each batch is a file. Times are kept as they are, and nothing is rolled up.",
    ),
    translated(
        "dataSchema.transformSpec",
        "writes[0].parquet.where",
        "`filter` becomes a predicate. `transforms` need a function of your own, which `transform` names.",
    ),
    translated(
        "dataSchema.parser", "schema", "An earlier form of `inputFormat`, `timestampSpec` and `dimensionsSpec`."
    ),
    without_meaning(
        "dataSchema.projections", "They are pre-aggregations of segments: make such tables from the dataset."
    ),
)

IO_CONFIG = (
    translated("ioConfig.type", READS, "The kind of source; only `kinesis` is translated.", _kinesis),
    taken_over("ioConfig.stream", f"{READS}.streams"),
    translated(
        "ioConfig.inputFormat",
        "schema",
        "`json`: payloads are parsed by the schema. `kinesis` around it: its `valueFormat`; partition key and arrival "
        "are columns anyway. `csv`, `tsv` and other formats need a transform that splits the column `data`.",
    ),
    translated(
        "ioConfig.endpoint",
        f"{READS}.region_name",
        "The region of an endpoint of AWS. Any other: by hand, as `endpoint_url` in the extra of the AWS connection.",
    ),
    taken_over("ioConfig.region", f"{READS}.region_name"),
    without_meaning(
        "ioConfig.replicas", "Leases give each shard to one job; if a job dies, the others take its shards over."
    ),
    without_meaning("ioConfig.serverPriorityToReplicas", "As `replicas`."),
    taken_over("ioConfig.taskCount", "supervise.task_count"),
    translated("ioConfig.autoScalerConfig", "supervise.auto_scale", "Field by field, if it is enabled; see below."),
    taken_over("ioConfig.stopTaskCount", "supervise.stop_task_count"),
    taken_over("ioConfig.taskDuration", "supervise.task_duration"),
    taken_over("ioConfig.startDelay", "supervise.start_delay"),
    taken_over("ioConfig.period", "supervise.period"),
    translated(
        "ioConfig.useEarliestSequenceNumber",
        f"{READS}.initial_position",
        "`TRIM_HORIZON` if true; `LATEST` if false or left out, which is Druid's default and not this package's.",
        _initial_position,
    ),
    taken_over(
        "ioConfig.completionTimeout", "supervise.completion_timeout", "The same; PT30M by default, as in Druid's code."
    ),
    taken_over("ioConfig.lateMessageRejectionPeriod", "supervise.late_message_rejection_period"),
    translated(
        "ioConfig.lateMessageRejectionStartDateTime",
        "supervise.late_message_rejection_start",
        "The same instant, in UTC where it names no zone.",
        _instant,
    ),
    taken_over("ioConfig.earlyMessageRejectionPeriod", "supervise.early_message_rejection_period"),
    without_meaning("ioConfig.recordsPerFetch", "A read asks for as much as Kinesis gives, within the shard's limits."),
    without_meaning("ioConfig.fetchDelayMillis", "Reading paces itself by the shard's limits of five calls a second."),
    by_hand("ioConfig.awsAssumedRoleArn", AWS_CONNECTION, "`role_arn`."),
    by_hand("ioConfig.awsExternalId", AWS_CONNECTION, "`ExternalId` in `assume_role_kwargs`."),
    without_meaning("ioConfig.deaggregate", "Aggregates of the Kinesis Producer Library are always expanded."),
    without_meaning(
        "ioConfig.idleConfig",
        "Waiting costs no worker slot, and jobs of a quiet stream cost no reads beyond one a shard.",
    ),
    translated(
        "ioConfig.boundedStreamConfig",
        f"{READS}.bounds",
        "Start and end of each shard, both included; `terminateOnCompletion` is `supervise.terminate_when_done`, its "
        "`taskCount` `supervise.task_count`.",
        _bounds,
    ),
)

AUTO_SCALE = "ioConfig.autoScalerConfig"
OF_AUTO_SCALE = "supervise.auto_scale"
AUTO_SCALER_CONFIG = (
    without_meaning(f"{AUTO_SCALE}.enableTaskAutoScaler", "Without it, or if it is false, there is no `auto_scale`."),
    translated(f"{AUTO_SCALE}.autoScalerStrategy", OF_AUTO_SCALE, "`lagBased` only.", _lag_based),
    taken_over(f"{AUTO_SCALE}.taskCountMin", f"{OF_AUTO_SCALE}.task_count_min"),
    taken_over(f"{AUTO_SCALE}.taskCountMax", f"{OF_AUTO_SCALE}.task_count_max"),
    taken_over(f"{AUTO_SCALE}.taskCountStart", f"{OF_AUTO_SCALE}.task_count_start"),
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
    taken_over(f"{AUTO_SCALE}.triggerScaleOutFractionThreshold", f"{OF_AUTO_SCALE}.trigger_scale_out_fraction"),
    taken_over(f"{AUTO_SCALE}.triggerScaleInFractionThreshold", f"{OF_AUTO_SCALE}.trigger_scale_in_fraction"),
    taken_over(f"{AUTO_SCALE}.scaleOutStep", f"{OF_AUTO_SCALE}.scale_out_step"),
    taken_over(f"{AUTO_SCALE}.scaleInStep", f"{OF_AUTO_SCALE}.scale_in_step"),
    translated(
        f"{AUTO_SCALE}.lagAggregate",
        f"{OF_AUTO_SCALE}.lag_aggregate",
        "In small letters; `sum` if left out, which is Druid's default, and not this package's.",
        _aggregate,
    ),
    without_meaning(f"{AUTO_SCALE}.stopTaskCountRatio", "Jobs hand over one by one, each as its successor runs."),
    without_meaning(
        f"{AUTO_SCALE}.useNearestFactorScaling", "Leases share shards out evenly whatever the number of jobs."
    ),
)

TUNING_CONFIG = (
    without_meaning("tuningConfig.type", "It says `kinesis` again."),
    *(
        without_meaning(f"tuningConfig.{name}", note)
        for names, note in (
            (
                ("maxRowsInMemory", "maxBytesInMemory", "skipBytesInMemoryOverheadCheck"),
                "Records go to files as they come; a slot holds `tuning.rounds.slot_memory_bytes` at most.",
            ),
            (
                ("maxRowsPerSegment", "maxTotalRows"),
                "There are no segments: each batch is a file, as large as `tuning.rounds.max_batch_bytes` lets it be.",
            ),
            (
                ("intermediateHandoffPeriod",),
                "Every round commits what it has read, a few seconds after it was read.",
            ),
            (
                ("intermediatePersistPeriod", "maxPendingPersists", "numPersistThreads"),
                "Nothing is persisted on the way: landed files are whole.",
            ),
            (
                ("indexSpec", "indexSpecForIntermediatePersists"),
                "Files are Parquet; give settings of Spark in `tuning.spark.conf`.",
            ),
            (
                (
                    "segmentWriteOutMediumFactory",
                    "appendableIndexSpec",
                    "maxColumnsToMerge",
                    "messageGapStatsEnabled",
                ),
                "It is about the inside of Druid's segments.",
            ),
        )
        for name in names
    ),
    translated(
        "tuningConfig.reportParseExceptions",
        "on_bad_records.max_parse_exceptions",
        "0 if true, whatever `maxParseExceptions` says.",
        _no_exceptions,
    ),
    without_meaning(
        "tuningConfig.logParseExceptions", "Bad records go to the dead letters; payloads are never logged."
    ),
    translated(
        "tuningConfig.maxParseExceptions",
        "on_bad_records.max_parse_exceptions",
        "The same; 2147483647 is any number.",
        _number_of_exceptions,
    ),
    translated(
        "tuningConfig.maxSavedParseExceptions",
        "on_bad_records.max_saved_parse_exceptions",
        f"The same, {MAX_SAVED_PARSE_EXCEPTIONS} at most: the dead letters have all of them.",
        _saved_exceptions,
    ),
    without_meaning("tuningConfig.handoffConditionTimeout", "What is committed is visible at once."),
    translated(
        "tuningConfig.resetOffsetAutomatically",
        f"{READS}.on_data_loss",
        "`reset` if true, which also records what is lost; `fail` parks the shard.",
        _on_data_loss,
    ),
    without_meaning(
        "tuningConfig.skipSequenceNumberAvailabilityCheck", "Reading itself finds what is gone; see `on_data_loss`."
    ),
    *(
        without_meaning(
            f"tuningConfig.{name}", "A look at the source is one thread of the triggerer, shared by all sources."
        )
        for name in ("workerThreads", "chatThreads")
    ),
    *(
        without_meaning(f"tuningConfig.{name}", "Jobs report to the store by themselves; nobody calls them.")
        for name in ("chatRetries", "httpTimeout")
    ),
    without_meaning("tuningConfig.shutdownTimeout", "Jobs outlive the supervisor, and the next one finds them."),
    without_meaning("tuningConfig.offsetFetchPeriod", "Jobs report their lag as they read; there is nothing to fetch."),
    translated(
        "tuningConfig.repartitionTransitionDuration",
        f"{READS}.repartition_transition_duration",
        "How long after a shard's end its children are first read; jobs are not stopped for it.",
        lambda value: value,
    ),
    *(
        without_meaning(
            f"tuningConfig.{name}",
            "All shards of a slot share one buffer, `tuning.rounds.slot_memory_bytes`.",
        )
        for name in ("recordBufferSize", "recordBufferSizeBytes", "recordBufferOfferTimeout", "recordBufferFullWait")
    ),
    without_meaning(
        "tuningConfig.fetchThreads", "A slot reads all its shards at once, within `tuning.rounds.slot_memory_bytes`."
    ),
    without_meaning("tuningConfig.fetchSequenceNumberTimeout", "`LATEST` is resolved once, to an instant."),
    *(
        without_meaning(f"tuningConfig.{name}", "A read takes all that Kinesis gives.")
        for name in ("maxRecordsPerPoll", "maxBytesPerPoll")
    ),
    without_meaning("tuningConfig.useListShards", "It is the only mode."),
    without_meaning(
        "tuningConfig.skipIgnorableShards", "An empty closed shard is read to its end, at the cost of one call."
    ),
)

FIELDS: tuple[DruidField, ...] = (*TOP, *DATA_SCHEMA, *IO_CONFIG, *AUTO_SCALER_CONFIG, *TUNING_CONFIG)
"""Every field that is known."""
