"""What every operator and sensor needs for the task try that it runs in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.owner import new_owner


def owner_of_try(context: Context) -> str:
    """Return a new owner for this try of this task."""
    ti: Any = context["ti"]
    map_index = ti.map_index if ti.map_index is not None else -1
    return new_owner(ti.dag_id, ti.run_id, ti.task_id, map_index, ti.try_number)


@contextmanager
def failing_when_misconfigured() -> Iterator[None]:
    """Fail the task without a retry for errors that only a user can fix.

    :raises AirflowFailException: for a `ConfigurationError` in the enclosed code, with only its message.
    """
    try:
        yield
    except ConfigurationError as error:
        raise AirflowFailException(str(error)) from None
