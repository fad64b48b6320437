"""What an operator asks a person through Airflow's human-in-the-loop tasks, and the person's response."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import Context
from airflow.sdk.execution_time.comms import CreateHITLDetailPayload

from airflow_provider_coordination.airflow_names import TaskDeferred


class Comms:
    """The questions that a task asks through Airflow's API server."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, msg: Any) -> None:
        if isinstance(msg, CreateHITLDetailPayload):
            self.messages.append(msg)


def waits(task: Any, context: Context) -> dict[str, Any]:
    """Let a task ask; return the arguments with which it continues."""
    from airflow.sdk import exceptions

    with pytest.raises((getattr(exceptions, "TaskAwaitingInput", TaskDeferred), TaskDeferred)) as waiting:
        task.execute(context)
    assert waiting.value.method_name == "execute_complete"
    kwargs: dict[str, Any] = waiting.value.kwargs
    return kwargs


def answer(*options: str) -> dict[str, Any]:
    """Return the response of a person, as the task gets it."""
    return {"chosen_options": list(options), "responded_by_user": {"id": "7", "name": "ann"}, "params_input": {}}
