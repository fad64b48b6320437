"""Triggers that wait until partitions are done, available or reopened, or until acknowledgment sets have ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import parse_instant
from airflow_provider_coordination.sources.queues import QueueAddress, check_queue
from airflow_provider_coordination.triggers.conditions import (
    Condition,
    PartitionsDone,
    PartitionsReopened,
    SetsEnded,
    WatermarkReached,
    WorkAvailable,
)
from airflow_provider_coordination.triggers.deferral import Settling, SourceTrigger, error_payload, event
from airflow_provider_coordination.triggers.watchers import Subscription, WatchError, watchers

DEFAULT_INTERVAL = timedelta(seconds=60)


class AcknowledgmentTrigger(SourceTrigger):
    """Fires when none of the acknowledgment sets is pending; overdue sets end as expired while it waits.

    If a user ends the task, the leases of partitions that wait for the sets are released.

    :param acknowledgment_sets: the ids of the sets; None for the sets of a run.
    :param run_name: the Airflow run whose sets are selected, as `run_name` names it.

    The other parameters are those of `SourceTrigger`. The status of the event is `ended`.
    """

    def __init__(
        self, *, acknowledgment_sets: Sequence[str] | None = None, run_name: str = "", **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self.acknowledgment_sets = None if acknowledgment_sets is None else list(acknowledgment_sets)
        self.run_name = run_name

    @override
    def condition(self) -> Condition:
        return SetsEnded(self.acknowledgment_sets, self.run_name)

    async def on_kill(self) -> None:
        """Release the leases of partitions that wait for the sets: no task follows them any more."""
        keys = await watchers().finish(
            watchers().give_back(self.coordination_conn_id, self.source, self.acknowledgment_sets, self.run_name)
        )
        self.log.info("%d leases released: source=%s partitions=%s", len(keys), self.source, ", ".join(keys) or "none")


class PartitionsCompletedTrigger(SourceTrigger):
    """Fires when every partition is COMPLETED or has delivered up to an instant, or one that is behind is parked.

    :param delivered_until: the instant, as `format_instant` writes it; None requires every partition to be COMPLETED.

    The other parameters are those of `SourceTrigger`. The status of the event is `done` or `parked`.
    """

    def __init__(self, *, delivered_until: str | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.delivered_until = delivered_until

    @override
    def condition(self) -> Condition:
        return PartitionsDone(None if self.delivered_until is None else parse_instant(self.delivered_until))


class WatermarkTrigger(SourceTrigger):
    """Fires when everything that arrived before an instant is delivered, or a partition that is behind is parked.

    :param until: the instant, as `format_instant` writes it; None for any watermark.

    The other parameters are those of `SourceTrigger`. The status of the event is `reached` or `parked`.
    """

    def __init__(self, *, until: str | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.until = until

    @override
    def condition(self) -> Condition:
        return WatermarkReached(None if self.until is None else parse_instant(self.until))


class PartitionsReopenedTrigger(SourceTrigger):
    """Fires when no CLOSED partition reopens by an instant any more; due partitions are reopened while it waits.

    While the source is suspended, due partitions are also reopened, but the trigger does not fire.

    :param reopens_at: the instant, as `format_instant` writes it.
    :param partitions: the number of partitions that the task waits for; the event passes it to the task.
    :param partition_keys: the keys of the first of them; the event passes them to the task.

    The other parameters are those of `SourceTrigger`. The status of the event is `reopened`.
    """

    def __init__(
        self, *, reopens_at: str, partitions: int = 0, partition_keys: Sequence[str] = (), **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self.reopens_at = reopens_at
        self.partitions = partitions
        self.partition_keys = list(partition_keys)

    @override
    def condition(self) -> Condition:
        return PartitionsReopened(parse_instant(self.reopens_at))

    @override
    def passed_on(self) -> Mapping[str, Any]:
        own = {"reopens_at": self.reopens_at, "partitions": self.partitions, "partition_keys": self.partition_keys}
        return {**super().passed_on(), **own}


class PartitionsAvailableTrigger(SourceTrigger, BaseEventTrigger):
    """Fires when a worker could acquire a partition, or a queue has messages; never while the source is suspended.

    For a deferred task it fires once. In an `AssetWatcher` it is a wake-up signal: while there is work it fires once an
    interval. As long as it runs, partitions reopen and overdue acknowledgment sets end. An event reports that there is
    work, not which: the DAG run that it starts acquires what there is.

    :param interval: the minimum time between two events; timedelta or seconds.
    :param queue: the URL of an SQS queue that announces data of the source: the event `messages` reports that it has
        messages. None of them is received. None if there is no queue.
    :param aws_conn_id: the AWS connection for the queue; None for the AWS default credential chain.
    :param region_name: the region of the queue, if neither its URL nor the connection names one.

    The other parameters are those of `SourceTrigger`. Without a `deadline`, no task waits.
    """

    def __init__(
        self,
        *,
        interval: timedelta | float = DEFAULT_INTERVAL,
        queue: str | None = None,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        if queue is not None:
            check_queue(queue)
        self.queue = queue
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self.interval = interval.total_seconds() if isinstance(interval, timedelta) else float(interval)
        if not self.interval > 0:
            raise ValueError(f"field 'interval' must be a positive timedelta or number of seconds; got {interval!r}")
        self._subscription: Subscription | None = None

    @override
    def condition(self) -> Condition:
        if self.queue is None:
            return WorkAvailable()
        return WorkAvailable(QueueAddress(url=self.queue, aws_conn_id=self.aws_conn_id, region_name=self.region_name))

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event `available` or `messages` once an interval while there is work.

        For a task it is a single one, or `error`.
        """
        settling = Settling(self)
        for_a_task = self.deadline is not None
        while True:
            self._subscription = watchers().subscribe(self.coordination_conn_id, self.source, self.condition())
            try:
                while True:
                    payload = {"status": await self._subscription.met(), "source": self.source}
                    if for_a_task:
                        await settling.over()
                        yield event({**payload, "deadline": self.deadline})
                        return
                    yield event(payload)
                    await asyncio.sleep(self.interval)
                    self._subscription.rearm()
            except WatchError as error:
                if for_a_task:
                    yield event({**error_payload(error), "deadline": self.deadline})
                    return
                # Airflow does not restart an asset's trigger, so it continues once the connection works again.
                self.log.error("source %s: no events until the connection works again: %s", self.source, error)
            finally:
                await self.cleanup()
            await asyncio.sleep(self.interval)

    async def cleanup(self) -> None:
        """End the subscription; the store does not change."""
        if self._subscription is not None:
            watchers().unsubscribe(self.coordination_conn_id, self._subscription)
            self._subscription = None
