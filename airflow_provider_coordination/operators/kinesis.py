"""Shard sync as a task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, Self, cast

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.links.leases import LeasesLink
from airflow_provider_coordination.operators.claims import claim_reads
from airflow_provider_coordination.operators.deduplication import left_by, other_source
from airflow_provider_coordination.operators.interval import bounded, interval_value
from airflow_provider_coordination.operators.moved_arguments import check_arguments
from airflow_provider_coordination.operators.reads.kinesis import KinesisStreams
from airflow_provider_coordination.operators.reads.reads import own_copy, source_of
from airflow_provider_coordination.operators.supplier_task import EndsWhenKilled
from airflow_provider_coordination.sources.kinesis.sync_summary import ShardSyncSummary

LEFT_TO = "source {!r} delivers all of the interval"


class KinesisShardSyncOperator(EndsWhenKilled, BaseOperator):
    """Creates the partitions that the shards of Kinesis streams call for, and keeps the two in step.

    It lists the shards, creates what is missing, reports what is gone, and removes the partitions of shards that are
    worked off. It may run at any time, twice, and beside running ingestion; what a job holds it leaves to the job. It
    takes over from an earlier try of its own, waits for the sync of any other worker until that one ends or its lease
    runs out, and fails if neither happens within ten minutes.

    Returns what it found and did, a small mapping: `source`, `streams` (for each stream, among others `created`,
    `removed`, `lost`, `hole` and the `counts` of all), `put_aside` and `skipped`.

    A stream that never existed, missing credentials or permissions, and bad settings fail the task without a retry,
    once the other streams are synced; so does, before anything, a source by whose name another DAG reads something
    else. Data that is lost does not: it is reported, and its partition parked.

    :param reads: the streams. (templated)
    :param source: the source's name; by default what `reads` calls it. (templated)
    :param interval: begin at the start of an interval, under leases of its own: `"data_interval"` for that of the run,
        or its ends; see `interval_value`. None for no bounds. (templated)
    :param deduplicate_against: the source of live ingestion, by its name: what it delivers, of the interval, is left to
        it, so that no record is delivered twice. None asks for no such thing. (templated)
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
        reads: KinesisStreams | None = None,
        source: str | None = None,
        interval: str | Sequence[Any] | None = None,
        deduplicate_against: str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        check_arguments(type(self).__name__, kwargs, reads=reads)
        super().__init__(**kwargs)
        assert reads is not None
        self.reads = own_copy(reads)
        self.source = source
        self.source_worked_on = ""
        self.interval = interval
        self.deduplicate_against = deduplicate_against
        self.coordination_conn_id = coordination_conn_id

    def prepare_for_execution(self) -> Self:
        """Return the task that is run, with templates of its own to render."""
        prepared = super().prepare_for_execution()
        prepared.reads = own_copy(self.reads)
        return prepared

    def execute(self, context: Context) -> dict[str, Any]:
        """Sync once.

        :raises AirflowFailException: if only a person can put things right.
        :raises CoordinationError: if the store or a stream did not answer, or another worker keeps syncing; a retry may
            help.
        """
        with failing_when_misconfigured():
            hook = CoordinationHook(self.coordination_conn_id)
            interval = interval_value(self.interval, context)
            reads = cast("KinesisStreams", bounded(self.reads, interval))
            connected = reads.connect(hook.settings.region)
            source = source_of(self.source, self.reads)
            self.source_worked_on = source = source if interval is None else interval.of(source)
            coordinator = hook.coordinator(source, owner_of_try(context))
            with closing(coordinator.store):
                other = other_source(self.deduplicate_against, interval, coordinator, hook.settings, reads.kind)
                claim_reads(coordinator.view, context, reads, connected.reads)
                left = cast("KinesisStreams | None", left_by(other, self.reads, interval, coordinator))
                if left is None:
                    assert other is not None
                    return ShardSyncSummary(source, skipped=LEFT_TO.format(other.source)).to_mapping()
                with self.supplying():
                    return left.sync(coordinator, hook.settings.region).to_mapping()
