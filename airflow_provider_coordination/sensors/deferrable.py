"""What every sensor here has in common: a look at the store, then a deferral if there is something to wait for."""

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
    """Looks once on the worker; if what it waits for is not there yet, it defers, or pokes as every sensor does.

    The event that ends a deferral is a doorbell: the sensor looks again, and defers again until its timeout if it was
    rung too early.

    :param deferrable: wait in the triggerer instead of on a worker.
    """

    def __init__(self, *, deferrable: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable

    @abstractmethod
    def poke(self, context: Context) -> PokeReturnValue:
        """Look once."""

    @abstractmethod
    def trigger(self, context: Context, deadline: str) -> BaseTrigger:
        """Return what waits in the triggerer.

        :param deadline: to be passed on in its event.
        """

    def execute(self, context: Context) -> Any:
        """Look, and wait if need be; return the summary.

        :raises AirflowFailException: if only a person can put things right.
        :raises AirflowSkipException: instead, or after the timeout, with `soft_fail`.
        """
        if not self.deferrable:
            return super().execute(context)
        try:
            return self._look(context, datetime.now(UTC) + timedelta(seconds=self.timeout))
        except (AirflowFailException, AirflowSensorTimeout) as error:
            if self.soft_fail or self.never_fail:  # a resumed sensor does this by itself
                raise AirflowSkipException(str(error)) from error
            raise

    def look_again(self, context: Context, event: dict[str, Any] | None = None) -> Any:
        """Go on after a deferral.

        :param event: the payload of the trigger's event.
        :raises AirflowFailException: if there is nothing more to wait for.
        """
        if event is None or "deadline" not in event or event.get("status") == ERROR:
            message = (event or {}).get("message") or f"the trigger sent no event that can be read: {event!r}"
            raise AirflowFailException(message)
        self.resumed(event)
        return self._look(context, parse_instant(event["deadline"]))

    def resumed(self, event: dict[str, Any]) -> None:
        """Take over from an event what was passed on."""

    def _look(self, context: Context, deadline: datetime) -> Any:
        answer = self.poke(context)
        if not answer.is_done:
            self._defer(context, deadline)
        return answer.xcom_value

    def _defer(self, context: Context, deadline: datetime) -> NoReturn:
        left = deadline - datetime.now(UTC)
        if left <= timedelta(0):
            raise AirflowSensorTimeout(f"what is waited for did not come about within {self.timeout:g} seconds")
        self.defer(
            trigger=self.trigger(context, format_instant(deadline)),
            method_name=self.look_again.__name__,
            timeout=left,
        )
