"""The sensor that waits until everything that arrived at a source in an interval is delivered."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import Context, PokeReturnValue
from airflow.triggers.base import BaseTrigger

from airflow_provider_coordination.airflow_names import AirflowFailException, conf
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, seconds_value
from airflow_provider_coordination.links import LeasesLink
from airflow_provider_coordination.sensors.partitions import instant_of
from airflow_provider_coordination.sources.watermarks import watermark_of
from airflow_provider_coordination.triggers.deferral import DeferrableSensor
from airflow_provider_coordination.triggers.partitions import WatermarkTrigger


class IntervalCompleteSensor(DeferrableSensor):
    """Waits until everything that arrived at a source before the end of an interval is delivered to all its sinks.

    It waits for the source's watermark, so it also waits while a partition was never read, or a shard has no partition
    yet. It fails without a retry if a partition that it waits for is parked. Returns `source`, `interval_end` and
    `watermark`, which is None for a source that is finished.

    :param source: the source's name. (templated)
    :param interval_end: the end of the interval: an aware instant, or one in UTC; text is parsed as ISO 8601.
        (templated)
    :param lateness: how long after its event time a record may arrive, if the interval is one of event times;
        timedelta or seconds. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    :param deferrable: wait in the triggerer instead of on a worker.
    """

    template_fields: Sequence[str] = ("source", "interval_end", "lateness", "coordination_conn_id")
    ui_color = "#e6f0d8"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        source: str,
        interval_end: datetime | str = "{{ data_interval_end or '' }}",
        lateness: timedelta | float | str = 0.0,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(deferrable=deferrable, **kwargs)
        self.source = source
        self.interval_end = interval_end
        self.lateness = lateness
        self.coordination_conn_id = coordination_conn_id

    def poke(self, context: Context) -> PokeReturnValue:
        """Compare the watermark with the end of the interval.

        :raises AirflowFailException: for an error that only a user can fix: a setting is wrong, or a partition that the
            sensor waits for is parked.
        :raises StoreUnavailableError: if the store does not respond.
        """
        with failing_when_misconfigured():
            until = self._until()
            view = CoordinationHook(self.coordination_conn_id).view(self.source)
        with closing(view.store):
            watermark = watermark_of(view)
        self.log.info("source %s: watermark %s; waiting for %s", self.source, watermark or "unknown", until)
        if watermark is None:
            return PokeReturnValue(is_done=False)
        if not (is_done := watermark.has_reached(until)) and (parked := watermark.parked_before(until)):
            raise AirflowFailException(f"source {self.source!r}: partition {parked.name} is {parked.reason}")
        result = {
            "source": self.source,
            "interval_end": format_instant(until),
            "watermark": None if watermark.until is None else format_instant(watermark.until),
        }
        return PokeReturnValue(is_done=is_done, xcom_value=result)

    @override
    def trigger(self, context: Context, deadline: str) -> BaseTrigger:
        return WatermarkTrigger(
            source=self.source,
            until=format_instant(self._until()),
            coordination_conn_id=self.coordination_conn_id,
            deadline=deadline,
        )

    def _until(self) -> datetime:
        """Return the instant that the watermark must reach.

        :raises ConfigurationError: if the end of the interval is not given, or a value is not valid.
        """
        end = instant_of(self.interval_end, "interval_end")
        if end is None:
            raise ConfigurationError(
                "field 'interval_end' is empty, as in a run without a data interval; give the end of the interval"
            )
        return end + timedelta(seconds=seconds_value("lateness", self.lateness) or 0.0)
