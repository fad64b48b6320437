"""Turns a condition into the event of a trigger; all triggers of this package share it.

An event is only a wake-up signal. Its payload is small: a status, and the values that the trigger was given to pass
on. It holds no state of the store; the task that it resumes reads the store itself.
"""

from __future__ import annotations

import asyncio
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_coordination.triggers.conditions import Condition
from airflow_provider_coordination.triggers.watchers import WatchError, watchers

ERROR = "error"
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


async def first_event(
    trigger: BaseTrigger, coordination_conn_id: str, source: str, condition: Condition, **passed_on: Any
) -> dict[str, Any]:
    """Wait until a condition holds, or waiting becomes impossible; return the payload of the event.

    :param trigger: the trigger that waits.
    :param passed_on: values that are added to the payload unchanged.
    """
    settling = Settling(trigger)
    subscription = watchers().subscribe(coordination_conn_id, source, condition)
    try:
        payload = {"status": await subscription.met()}
    except WatchError as error:
        payload = error_payload(error)
    finally:
        watchers().unsubscribe(coordination_conn_id, subscription)
    await settling.over()
    return {**payload, **passed_on}


def event(payload: dict[str, Any]) -> TriggerEvent:
    """Return an event with this payload."""
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]


def error_payload(error: WatchError) -> dict[str, Any]:
    """Return a payload that fails the task without a retry, with the error's message."""
    return {"status": ERROR, "message": str(error)}


def classpath(trigger: BaseTrigger) -> str:
    """Return the path by which Airflow imports a trigger's class."""
    return f"{type(trigger).__module__}.{type(trigger).__qualname__}"
