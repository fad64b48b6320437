"""The task that syncs the partitions of a source with the shards of its streams."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, cast

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import OwnCopiesMixin, failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.links import LeasesLink
from airflow_provider_coordination.operators.claims import claim_reads
from airflow_provider_coordination.operators.create_partitions import KillableSupplierMixin
from airflow_provider_coordination.operators.interval import bounded, interval_value, other_source, remaining_reads
from airflow_provider_coordination.settings import check_parsed
from airflow_provider_coordination.sources.kinesis.sync_state import ShardSyncSummary
from airflow_provider_coordination.sources.reads import Reads, own_copy, source_of

LEFT_TO = "source {!r} delivers the whole interval"


class ShardSyncOperator(OwnCopiesMixin, KillableSupplierMixin, BaseOperator):
    """Creates the partitions for the shards of streams, and keeps partitions and shards in step.

    The task lists the shards, creates missing partitions, reports shards that are gone, and removes the partitions of
    shards that are completely read. It may run at any time, repeatedly, and during ingestion; it leaves
    partitions that a job holds to that job. It takes over from its own earlier try. It waits for the sync of any
    other worker until that worker ends or its lease expires, and fails if neither happens within ten minutes.

    Returns a small summary: `source`, `streams` (for each stream, among others `created`, `removed`, `lost`, `hole` and
    the `counts` of all), `put_aside` and `skipped`.

    The task fails without a retry, once the other streams are synced, if a stream never existed, credentials or
    permissions are missing, or settings are wrong. It fails before the sync if another DAG uses the same source name
    and reads a different location. Lost data does not fail the task: it is reported, and its partition is parked.

    :param reads: the streams, as `KinesisStreams` or `DynamoDBStreams`, or a `DynamoDBTable` with `follow`, for whose
        items the task creates partitions as well. (templated)
    :param source: the source's name; by default `reads` provides it. (templated)
    :param interval: begin at the start of an interval, under its own leases: `"data_interval"` for the interval of
        the run, or its two ends; see `interval_value`. None means no bounds. (templated)
    :param deduplicate_against: the name of the source of live ingestion. The task leaves out what that source delivers
        of the interval, so that no record is delivered twice. None leaves nothing out. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    template_fields: Sequence[str] = (
        "reads",
        "source",
        "interval",
        "deduplicate_against",
        "coordination_conn_id",
    )
    ui_color = "#f5e6cc"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        reads: Reads,
        source: str | None = None,
        interval: str | Sequence[Any] | None = None,
        deduplicate_against: str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        check_parsed(reads)
        if not reads.is_synced:
            raise ValueError(f"'reads' is of kind {reads.kind!r}, without shards; use CreatePartitionsOperator")
        super().__init__(**kwargs)
        self.reads = own_copy(reads)
        self.source = source
        self.source_worked_on = ""
        self.interval = interval
        self.deduplicate_against = deduplicate_against
        self.coordination_conn_id = coordination_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Sync the partitions.

        :raises AirflowFailException: for an error that only a user can fix.
        :raises CoordinationError: if the store or a stream did not respond, or another worker keeps syncing; a retry
            may succeed.
        """
        with failing_when_misconfigured():
            hook = CoordinationHook(self.coordination_conn_id)
            connections = AirflowConnections(hook.settings.region)
            interval = interval_value(self.interval, context)
            reads = bounded(self.reads, interval)
            connected = reads.connect(connections)
            source = source_of(self.source, self.reads)
            self.source_worked_on = source = source if interval is None else interval.source_name(source)
            coordinator = hook.coordinator(source, owner_of_try(context))
            with closing(coordinator.store):
                other = other_source(self.deduplicate_against, interval, coordinator, hook.settings, reads.kind)
                claim_reads(coordinator.view, context, reads, connected.reads)
                remaining = remaining_reads(other, self.reads, interval, coordinator)
                if remaining is None:
                    assert other is not None
                    return ShardSyncSummary(source, skipped=LEFT_TO.format(other.source)).to_mapping()
                with self.supplying():
                    return cast("ShardSyncSummary", remaining.sync(coordinator, connections)).to_mapping()
