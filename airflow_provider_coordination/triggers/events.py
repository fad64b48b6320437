"""From a condition to the event of a trigger: what every trigger here has in common.

An event is a doorbell. Its payload is small and holds a status, what the trigger was told to pass on, and no truth
about the store: the task that it resumes looks for itself.
"""

from __future__ import annotations

import asyncio
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_coordination.triggers.conditions import Condition
from airflow_provider_coordination.triggers.watchers import WatchError, watchers

ERROR = "error"
SETTLING_SECONDS = 5.0
"""An event of a deferred task waits until its trigger is this old: a local executor may take the news that the task
deferred for the news that it failed, if the task is queued again before that has come through."""


class Settling:
    """Lets the event of a deferred task wait while the deferral itself is news.

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
    """Wait until a condition holds, or nothing more can be waited for; return the payload of the event.

    :param trigger: who waits.
    :param passed_on: put into the payload as it is.
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
    """Return the event with this payload."""
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]


def error_payload(error: WatchError) -> dict[str, Any]:
    """Return the payload that fails the task without a retry, with the error's message."""
    return {"status": ERROR, "message": str(error)}


def classpath(trigger: BaseTrigger) -> str:
    """Return by what name Airflow finds a trigger's class."""
    return f"{type(trigger).__module__}.{type(trigger).__qualname__}"
