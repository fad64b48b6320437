"""Deferral: the event that a condition becomes, and the sensors that defer until it.

An event is only a wake-up signal. Its payload is small: a status, and the values that the trigger was given to pass
on. It holds no state of the store; the task that it resumes reads the store itself.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_provider_coordination.airflow_names import (
    CALLS_ON_KILL,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
)
from airflow_provider_coordination.coordination.partition import format_instant, parse_instant
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.triggers.conditions import Condition
from airflow_provider_coordination.triggers.watchers import WatchError, watchers

ERROR = "error"
DEFERRED = "deferred"
"""Airflow's state of a task that still waits for its trigger."""
STATE_TIMEOUT_SECONDS = 10.0
SETTLING_SECONDS = 5.0
"""The minimum age of a trigger before it sends an event to a deferred task. If the task is queued again before the
deferral is processed, a local executor may mistake the deferral for a failure."""


class Settling:
    """Delays the event of a deferred task until the deferral itself has been processed.

    :param trigger: the trigger, which begins now.
    """

    def __init__(self, trigger: BaseTrigger) -> None:
        self._until = asyncio.get_running_loop().time() + SETTLING_SECONDS
        self._is_needed = trigger.task_instance is not None

    async def over(self) -> None:
        """Return when an event may be sent."""
        if self._is_needed:
            await asyncio.sleep(max(0.0, self._until - asyncio.get_running_loop().time()))


class SourceTrigger(BaseTrigger):
    """Base of the triggers that wait for a condition of a source. Airflow stores its arguments, by their names.

    :param source: the source's name.
    :param coordination_conn_id: the connection of type `coordination`.
    :param deadline: an instant that the event passes to the task; None if there is no deadline.
    """

    def __init__(
        self,
        *,
        source: str,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        deadline: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.source = source
        self.coordination_conn_id = coordination_conn_id
        self.deadline = deadline

    @abstractmethod
    def condition(self) -> Condition:
        """Return the condition to wait for."""

    def passed_on(self) -> Mapping[str, Any]:
        """Return the values that the event passes to the task unchanged."""
        return {"deadline": self.deadline}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path by which Airflow imports this class, and the arguments of this trigger."""
        arguments = {
            name: getattr(self, name)
            for each in type(self).__mro__
            if issubclass(each, SourceTrigger)
            for name in inspect.signature(each).parameters
            if hasattr(self, name)
        }
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: the condition's status, or `error` with a message."""
        settling = Settling(self)
        subscription = watchers().subscribe(self.coordination_conn_id, self.source, self.condition())
        try:
            payload = {"status": await subscription.met()}
        except WatchError as error:
            payload = error_payload(error)
        except asyncio.CancelledError:
            if not CALLS_ON_KILL:
                await watchers().finish(self._kill_if_left())
            raise
        finally:
            watchers().unsubscribe(self.coordination_conn_id, subscription)
        await settling.over()
        yield event({**payload, **self.passed_on()})

    async def on_kill(self) -> None:
        """Undo what only the waiting task needed, because a user ended it; nothing by default."""

    async def _kill_if_left(self) -> None:
        """Do what a newer triggerer does if a user ended the task; nothing if the triggerer ends, or does not know."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance  # heavy, and rarely needed

        ti = self.task_instance
        if ti is None:
            return
        try:
            async with asyncio.timeout(STATE_TIMEOUT_SECONDS):
                states = await sync_to_async(RuntimeTaskInstance.get_task_states, thread_sensitive=False)(
                    dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=ti.map_index
                )
        except Exception as error:
            self.log.info("the state of the task is not known, so its work continues: %s", error)
            return
        if DEFERRED not in states.get(ti.run_id, {}).values():
            await self.on_kill()


def event(payload: Mapping[str, Any]) -> TriggerEvent:
    """Return an event with this payload."""
    return TriggerEvent(dict(payload))  # type: ignore[no-untyped-call]


def event_with(event: dict[str, Any] | None, field: str) -> dict[str, Any]:
    """Return the payload of an event that resumed a task.

    :param field: a field that every event of its trigger has.
    :raises AirflowFailException: if waiting has become impossible, or the payload cannot be read.
    """
    if event is None or field not in event or event.get("status") == ERROR:
        message = (event or {}).get("message") or f"the trigger sent an event that cannot be read: {event!r}"
        raise AirflowFailException(message)
    return event


def error_payload(error: WatchError) -> dict[str, Any]:
    """Return a payload that fails the task without a retry, with the error's message."""
    return {"status": ERROR, "message": str(error)}


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
        event = event_with(event, "deadline")
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
