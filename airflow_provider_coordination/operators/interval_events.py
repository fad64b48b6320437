"""The task that reports a complete interval of a source as an event of an asset: once, in order, never early."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, BaseOperator, Context

from airflow_provider_coordination.airflow_names import AirflowSkipException
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.intervals import Delivered, IntervalLedger, Ledger, Standing, Taken
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, seconds_value
from airflow_provider_coordination.links import LeasesLink
from airflow_provider_coordination.sources.watermarks import lost_between, watermark_of
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file
from airflow_provider_coordination.triggers.deferral import event_with
from airflow_provider_coordination.triggers.partitions import WatermarkTrigger

if TYPE_CHECKING:
    from airflow.sdk.definitions.mappedoperator import OperatorPartial

PARTITION_KEY_FORMAT = "%Y-%m-%dT%H:%M:%S"
"""How `CronPartitionTimetable` of Airflow writes the key of a partition by default."""
LOOKS_AGAIN_AFTER = timedelta(minutes=1)
EVENTS_READ = 100
"""How many of the latest events of the asset are searched for the event of an interval."""
RUNNING, SUCCESS = "running", "success"


class IntervalCompleteOperator(BaseOperator):
    """Reports the next complete interval of a source as an event of its asset, and succeeds; one task, one interval.

    Jobs count what they deliver in each interval if `completes` of their `Ingestion` is set. An interval is complete
    once everything that arrived before its end is delivered to all sinks. Airflow writes the event in the transaction
    in which it notes the success of the task. The next interval is reported only once that is known. So each interval
    is reported once, in order, and never early.

    The event's `extra`, which is also returned, has `source`, `interval_start`, `interval_end`, and the counts
    `records`, `bytes`, `batches`, `late` and `dead_letters`. `lost` lists ranges that were lost in the interval.
    `is_reread` is whether a reset made records be delivered, and counted, again. If Airflow knows partition keys, the
    event has the start of the interval as its key.

    :param asset: the asset whose events report the intervals of this source. No other task reports them.
    :param source: the source's name. (templated)
    :param spec_file: the path of a spec file that names the source, instead of `source`.
    :param corrections: whether to report intervals of which records were delivered after they had been reported. The
        counts are then those of these records alone.
    :param lateness: how long after its event time a record may arrive: an interval is reported this much later;
        timedelta or seconds. (templated)
    :param number: distinguishes the instances of a mapped task; it has no other effect.
    :param waits: whether to wait in the triggerer until the next interval is complete; otherwise the task is skipped.
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    template_fields: Sequence[str] = ("source", "lateness", "coordination_conn_id")
    ui_color = "#e6f0d8"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        asset: Asset,
        source: str | None = None,
        spec_file: str | None = None,
        corrections: bool = False,
        lateness: timedelta | float | str = 0.0,
        waits: bool = True,
        number: int = 0,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        if (source is None) == (spec_file is None):
            raise ValueError("give either 'source' or 'spec_file'")
        # As an inlet, the asset shows the task its earlier events.
        super().__init__(**{**kwargs, "outlets": [asset], "inlets": [asset]})
        self.asset = asset
        self.source = source
        self.spec_file = spec_file
        self.corrections = corrections
        self.lateness = lateness
        self.waits = waits
        self.number = number
        self.coordination_conn_id = coordination_conn_id

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """Return the operator with these arguments, to be expanded; see Airflow's `BaseOperator.partial`.

        Airflow looks for the assets of a mapped task in these arguments, and never in the operator.
        """
        assets = [kwargs["asset"]] if "asset" in kwargs else []
        return super().partial(**{**kwargs, "outlets": assets, "inlets": assets})

    def execute(self, context: Context) -> dict[str, Any]:
        """Report the next interval, or wait for it.

        :raises AirflowFailException: if a setting is wrong.
        :raises AirflowSkipException: if no interval is complete, without `waits`.
        :raises StoreUnavailableError: if the store does not respond.
        """
        with failing_when_misconfigured():
            source, connection = self._named()
            lateness = timedelta(seconds=seconds_value("lateness", self.lateness) or 0.0)
            view = CoordinationHook(connection).view(source)
        with closing(view.store):
            taken = self._take(context, view, lateness)
            ledger = IntervalLedger(view).get()
        if taken is not None and ledger is not None:
            return self._report(context, source, taken, ledger.length)
        if not self.waits:
            raise AirflowSkipException(f"source {source!r}: no interval to report")
        until = _due_at(ledger, lateness, datetime.now(UTC))
        self.log.info("source %s: waiting for the watermark %s", source, until or "to be known")
        self.defer(
            trigger=WatermarkTrigger(
                source=source,
                until=None if until is None else format_instant(until),
                coordination_conn_id=connection,
            ),
            method_name=self.continue_after.__name__,
        )
        raise AssertionError("a deferral never returns")

    def continue_after(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Report the interval after a deferral, or wait again.

        :param event: the payload of the trigger's event.
        :raises AirflowFailException: if waiting has become impossible.
        """
        event_with(event, "status")
        return self.execute(context)

    def _named(self) -> tuple[str, str]:
        """Return the source, and the connection of its store.

        :raises ConfigurationError: if there is no valid spec file.
        """
        if self.spec_file is None:
            return str(self.source), self.coordination_conn_id
        spec = IngestionSpec.read(read_spec_file(self.spec_file)[0])
        return spec.source, spec.tuning.coordination_conn_id

    def _take(self, context: Context, view: SourceView, lateness: timedelta) -> Taken | None:
        """Take the next interval for this task; None if there is none."""
        me = task_instance_of(context)
        standing = partial(self._standing, context, view.source, me)
        ledger = IntervalLedger(view)
        if self.corrections:
            return ledger.take_correction(me, standing)
        watermark = watermark_of(view)
        if watermark is None:
            return None
        until = None if watermark.until is None else watermark.until - lateness
        delivered = Delivered(until, watermark.is_finished)
        return ledger.take(me, standing, delivered, partial(lost_between, view))

    def _standing(self, context: Context, source: str, me: str, taken: Taken) -> Standing:
        """Return what became of the task instance that took an interval: Airflow's events and states decide."""
        state = None if taken.by == me else _state_of(context, taken.by)
        if state == RUNNING:
            return Standing.RUNNING
        # The events are read after the state: what is not running any more, and did not report, never will.
        if state == SUCCESS or self._was_reported(context, source, taken):
            return Standing.REPORTED
        return Standing.OVER

    def _was_reported(self, context: Context, source: str, taken: Taken) -> bool:
        start = format_instant(taken.counts.start)
        return any(
            extra.get("source") == source
            and extra.get("interval_start") == start
            and (not self.corrections or extra.get("reported_by") == taken.by)
            for extra in self._latest_extras(context)
        )

    def _latest_extras(self, context: Context) -> list[Mapping[str, Any]]:
        """Return what the latest events of the asset report."""
        events: Any = context["inlet_events"][self.asset]
        if hasattr(events, "limit"):
            events = events.ascending(False).limit(EVENTS_READ)
        return [each.extra or {} for each in list(events)[-EVENTS_READ:]]

    def _report(self, context: Context, source: str, taken: Taken, length: timedelta) -> dict[str, Any]:
        counts = taken.counts
        extra = {
            "source": source,
            "interval_start": format_instant(counts.start),
            "interval_end": format_instant(counts.start + length),
            "records": counts.records,
            "bytes": counts.bytes,
            "batches": counts.batches,
            "late": counts.late,
            "dead_letters": counts.dead_letters,
            "lost": list(taken.lost),
            "is_reread": counts.is_reread,
            "reported_by": taken.by,
        }
        event: Any = context["outlet_events"][self.asset]
        event.extra.update(extra)
        if hasattr(event, "add_partitions"):
            event.add_partitions(counts.start.strftime(PARTITION_KEY_FORMAT))
        self.log.info("source %s: interval reported: %s", source, extra)
        return extra


def _due_at(ledger: Ledger | None, lateness: timedelta, now: datetime) -> datetime | None:
    """Return the watermark to wait for; None for any.

    :param ledger: the ledger; None if no job counts intervals yet.
    :param now: the present instant (aware).
    """
    start = None if ledger is None else ledger.next or ledger.start
    if ledger is not None and start is None:
        return None
    end = now if ledger is None or start is None else start + ledger.length + lateness
    # What is over already is not to be reported now: another task is about to do it, or no job counts yet.
    return max(end, now + LOOKS_AGAIN_AFTER)


def task_instance_of(context: Context) -> str:
    """Return the name of this task instance, the same for each of its tries."""
    ti: Any = context["ti"]
    return json.dumps([ti.dag_id, ti.run_id, ti.task_id, -1 if ti.map_index is None else ti.map_index])


def _state_of(context: Context, task_instance: str) -> str | None:
    """Return the state of another task instance; None if it has none, or no longer exists."""
    ti: Any = context["ti"]
    with suppress(ValueError):
        dag_id, run_id, task_id, map_index = json.loads(task_instance)
        found = ti.get_task_states(
            dag_id=dag_id, task_ids=[task_id], run_ids=[run_id], map_index=None if map_index < 0 else map_index
        )
        states = [str(state) for state in found.get(run_id, {}).values() if state is not None]
        return states[0] if states else None
    raise ConfigurationError(f"the ledger of intervals names the task instance {task_instance!r}, which is none")
