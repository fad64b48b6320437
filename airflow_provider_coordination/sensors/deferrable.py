"""The common base of this package's sensors: one check of the store, then a deferral if it must wait."""

from __future__ import annotations

from abc import abstractmethod
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, AirflowSkipException
from airflow.triggers.base import BaseTrigger

from airflow_provider_coordination.coordination.partition import format_instant, parse_instant
from airflow_provider_coordination.triggers.events import ERROR


class DeferrableSensor(BaseSensorOperator):
    """Checks once on the worker; if it must wait, it defers, or pokes as every sensor does.

    The event that ends a deferral is only a wake-up signal: the sensor checks again. If the event came too early, it
    defers again until its timeout.

    :param deferrable: wait in the triggerer instead of on a worker.
    """

    def __init__(self, *, deferrable: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable

    @abstractmethod
    def poke(self, context: Context) -> PokeReturnValue:
        """Check once."""

    @abstractmethod
    def trigger(self, context: Context, deadline: str) -> BaseTrigger:
        """Return the trigger that waits.

        :param deadline: an instant that the trigger's event must contain.
        """

    def execute(self, context: Context) -> Any:
        """Check, and wait if necessary; return the summary.

        :raises AirflowFailException: for an error that only a user can fix.
        :raises AirflowSkipException: instead of an error, or after the timeout, with `soft_fail`.
        """
        if not self.deferrable:
            return super().execute(context)
        try:
            return self._poll(context, datetime.now(UTC) + timedelta(seconds=self.timeout))
        except (AirflowFailException, AirflowSensorTimeout) as error:
            if self.soft_fail or self.never_fail:  # Airflow does this for resumed sensors
                raise AirflowSkipException(str(error)) from error
            raise

    def poll_again(self, context: Context, event: dict[str, Any] | None = None) -> Any:
        """Resume after a deferral.

        :param event: the payload of the trigger's event.
        :raises AirflowFailException: if waiting has become impossible.
        """
        if event is None or "deadline" not in event or event.get("status") == ERROR:
            message = (event or {}).get("message") or f"the trigger sent an event that cannot be read: {event!r}"
            raise AirflowFailException(message)
        self.resumed(event)
        return self._poll(context, parse_instant(event["deadline"]))

    def resumed(self, event: dict[str, Any]) -> None:
        """Restore the values that the event passes on."""

    def _poll(self, context: Context, deadline: datetime) -> Any:
        result = self.poke(context)
        if not result.is_done:
            self._defer(context, deadline)
        return result.xcom_value

    def _defer(self, context: Context, deadline: datetime) -> NoReturn:
        left = deadline - datetime.now(UTC)
        if left <= timedelta(0):
            raise AirflowSensorTimeout(f"the condition was not met within {self.timeout:g} seconds; raise 'timeout'")
        self.defer(
            trigger=self.trigger(context, format_instant(deadline)),
            method_name=self.poll_again.__name__,
            timeout=left,
        )
