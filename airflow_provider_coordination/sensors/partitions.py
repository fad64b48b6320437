"""Sensors that wait until a source's partitions are done, have delivered up to an instant, or are available."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pendulum
from airflow.sdk import Context, PokeReturnValue
from airflow.triggers.base import BaseTrigger

from airflow_provider_coordination.airflow_names import AirflowFailException, conf
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.metrics import PARTITIONS, Metrics
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import (
    UNFINISHED,
    Partition,
    PartitionStatus,
    format_instant,
)
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.texts import first_of
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.hooks.coordination import AirflowMetrics, CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured
from airflow_provider_coordination.links import LeasesLink
from airflow_provider_coordination.settings import is_plain
from airflow_provider_coordination.sources.queues import QueueAddress, check_queue
from airflow_provider_coordination.triggers.deferral import DeferrableSensor
from airflow_provider_coordination.triggers.partitions import PartitionsAvailableTrigger, PartitionsCompletedTrigger
from airflow_provider_coordination.triggers.polling import delivered_until

KEYS_SHOWN = 5


class PartitionsCompletedSensor(DeferrableSensor):
    """Waits until every partition of a source is COMPLETED or has delivered everything up to an instant.

    The sensor also waits while the source has no partitions, because its shard sync may not have run yet, and while the
    source is suspended. It fails without a retry if a partition that it waits for is parked: it failed too often or was
    put aside, and only a user reopens it. Returns the number of partitions in each status, and reports it at each
    check as the gauge `coordination.partitions`.

    :param source: the source's name. (templated)
    :param delivered_until: an aware instant, or one in UTC; text is parsed as ISO 8601. For a partition that is still
        open, as an open shard always is, the sensor only waits until `delivered_until` in its progress is at or after
        this instant. None waits until every partition is COMPLETED. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    :param deferrable: wait in the triggerer instead of on a worker.
    """

    template_fields: Sequence[str] = ("source", "delivered_until", "coordination_conn_id")
    ui_color = "#e6f0d8"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        source: str,
        delivered_until: datetime | str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(deferrable=deferrable, **kwargs)
        self.source = source
        self.delivered_until = delivered_until
        self.coordination_conn_id = coordination_conn_id

    def poke(self, context: Context) -> PokeReturnValue:
        """Check the partitions.

        :raises AirflowFailException: for an error that only a user can fix: a setting is wrong, or a partition that the
            sensor waits for is parked.
        :raises StoreUnavailableError: if the store does not respond.
        """
        with failing_when_misconfigured():
            instant = instant_of(self.delivered_until)
            view = CoordinationHook(self.coordination_conn_id).view(self.source)
        with closing(view.store):
            check = check_partitions(view, instant)
            # A partition that changes its status while pages are read may be missing from both; a second check is not
            # misled by the same change.
            if check.is_met:
                check = check_partitions(view, instant)
            if not check.is_met:
                view.suspension()  # logs that the source is suspended, which also delays the sensor
        self.log.info("source %s: %s", self.source, check)
        report_partitions(AirflowMetrics(), view, check.counts)
        if check.parked:
            raise AirflowFailException(f"source {self.source!r}: {check.parked_message}")
        return PokeReturnValue(is_done=check.is_met, xcom_value={str(s): n for s, n in check.counts.items()})

    @override
    def trigger(self, context: Context, deadline: str) -> BaseTrigger:
        instant = instant_of(self.delivered_until)
        return PartitionsCompletedTrigger(
            source=self.source,
            delivered_until=None if instant is None else format_instant(instant),
            coordination_conn_id=self.coordination_conn_id,
            deadline=deadline,
        )


class PartitionsAvailableSensor(DeferrableSensor):
    """Waits until a worker could acquire a partition of a source, or until a queue has messages; never while the source
    is suspended.

    Another worker may acquire the work first, so the task that follows must accept finding none. Returns the number of
    partitions in each status, and reports it at each check as the gauge `coordination.partitions`.

    :param source: the source's name. (templated)
    :param queue_url: the URL of an SQS queue that announces data of the source; the sensor also succeeds if it has
        messages. It receives none of them. (templated)
    :param aws_conn_id: the AWS connection for the queue; None for the AWS default credential chain. (templated)
    :param region_name: the region of the queue, if neither its URL nor the connection names one. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    :param deferrable: wait in the triggerer instead of on a worker; due partitions then also reopen.
    """

    template_fields: Sequence[str] = ("source", "queue_url", "aws_conn_id", "region_name", "coordination_conn_id")
    ui_color = "#e6f0d8"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        source: str,
        queue_url: str | None = None,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(deferrable=deferrable, **kwargs)
        self.source = source
        self.queue_url = queue_url
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self.coordination_conn_id = coordination_conn_id
        if queue_url is not None and is_plain(queue_url):
            check_queue(queue_url, "queue_url")

    def poke(self, context: Context) -> PokeReturnValue:
        """Check for available work, and for messages.

        :raises AirflowFailException: if a setting is wrong, or the queue does not exist or denies access.
        :raises StoreUnavailableError: if the store does not respond.
        :raises SourceUnavailableError: if the queue does not respond.
        """
        with failing_when_misconfigured():
            messages = self._messages()
            view = CoordinationHook(self.coordination_conn_id).view(self.source)
        with closing(view.store):
            is_available = view.is_available() or (messages > 0 and view.suspension() is None)
            counts = view.count_by_status()
        shown = ", ".join(f"{status} {count}" for status, count in counts.items())
        queued = "" if self.queue_url is None else f"; about {messages} messages in {self.queue_url}"
        self.log.info(
            "source %s: %s%s; %s", self.source, shown, queued,
            "work is available" if is_available else "waiting for work",
        )  # fmt: skip
        report_partitions(AirflowMetrics(), view, counts)
        return PokeReturnValue(is_done=is_available, xcom_value={str(s): n for s, n in counts.items()})

    def _messages(self) -> int:
        """Return about how many messages the queue has to receive."""
        if self.queue_url is None:
            return 0
        check_queue(self.queue_url, "queue_url")
        address = QueueAddress(url=self.queue_url, aws_conn_id=self.aws_conn_id, region_name=self.region_name)
        return address.open(AirflowConnections(None)).waiting()

    @override
    def trigger(self, context: Context, deadline: str) -> BaseTrigger:
        return PartitionsAvailableTrigger(
            source=self.source,
            queue=self.queue_url,
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
            coordination_conn_id=self.coordination_conn_id,
            deadline=deadline,
        )


@dataclass(frozen=True)
class PartitionCheck:
    """The result of one check of a source's partitions.

    :param counts: the number of partitions in each status.
    :param waiting_for: the keys of the partitions that are not done.
    :param is_complete: whether every unfinished partition was read.
    :param parked: the partitions that are not done and are parked: waiting does not help.
    """

    counts: dict[PartitionStatus, int]
    waiting_for: list[str]
    is_complete: bool
    parked: list[Partition]

    @property
    def is_met(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.is_complete and not self.waiting_for and any(self.counts.values())

    @property
    def parked_message(self) -> str:
        """The parked partitions, their errors, and what to do."""
        parked = [f"{p.partition_key} (failures: {p.attempts}, last error: {p.last_error})" for p in self.parked]
        shown = first_of(parked, KEYS_SHOWN, separator="; ")
        return (
            f"{len(self.parked)} partitions are parked: {shown}; fix the causes, then reopen them with "
            "`airflow-coordination reopen`"
        )

    def __str__(self) -> str:
        if not any(self.counts.values()):
            return "no partitions yet; waiting for the task that creates them"
        counts = ", ".join(f"{status} {count}" for status, count in self.counts.items())
        if not self.waiting_for:
            return f"{counts}; {'nothing to wait for' if self.is_met else 'changing, checking again'}"
        return f"{counts}; waiting for {len(self.waiting_for)}: {first_of(self.waiting_for, KEYS_SHOWN)}"


def check_partitions(view: SourceView, instant: datetime | None) -> PartitionCheck:
    """Read the unfinished partitions, then the counts.

    :param instant: the instant up to which an unfinished partition must have delivered; None if all must be COMPLETED.
    """
    unfinished = {partition.partition_key: partition for partition in view.partitions(*UNFINISHED)}
    counts = view.count_by_status()
    expected = sum(counts[status] for status in UNFINISHED)
    behind = keys_behind(unfinished.values(), instant)
    parked = [unfinished[key] for key in behind if unfinished[key].is_parked]
    return PartitionCheck(counts, behind, is_complete=len(unfinished) >= expected, parked=parked)


def report_partitions(metrics: Metrics, view: SourceView, counts: Mapping[PartitionStatus, int]) -> None:
    """Report the number of a source's partitions in each status as gauges, including zeros."""
    tags = {"source": view.source, "store": view.store.kind}
    for status, count in counts.items():
        metrics.gauge(PARTITIONS, count, {**tags, "status": str(status)})


def keys_behind(partitions: Iterable[Partition], instant: datetime | None) -> list[str]:
    """Return the keys of unfinished partitions that have not delivered up to an instant; all if it is None."""
    return [p.partition_key for p in partitions if instant is None or delivered_until(p) < instant]


def instant_of(value: datetime | str | None, field: str = "delivered_until") -> datetime | None:
    """Return an instant, aware and in UTC, from the value of a user or a template; None if it is not given.

    :param field: the name of the field, for the error.
    :raises ConfigurationError: if the value is not an instant.
    """
    if value in (None, "", "None"):
        return None
    try:
        parsed = value if isinstance(value, datetime) else pendulum.parse(str(value))
    except ValueError:
        parsed = None
    if not isinstance(parsed, datetime):
        raise ConfigurationError(f"field {field!r} must be an instant, such as 2026-01-31T00:00:00Z; got {value!r}")
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
