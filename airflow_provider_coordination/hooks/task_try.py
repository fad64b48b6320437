"""What operators and sensors need for the task try that they run in: its owner, its audit fields, its templated values.

Templates render text, even for numbers and booleans. None, empty text and the text "None" (which a template renders
for None) all mean "not given". A list may also be rendered as text.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, Self

from airflow.sdk import Context

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.workers import new_owner
from airflow_provider_coordination.settings import NOTHING, YES_OR_NO
from airflow_provider_coordination.sources.reads import own_copy


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


def int_value(field: str, value: Any) -> int | None:
    """Return the whole number; None if it is not given.

    :raises ConfigurationError: if the value is not a whole number.
    """
    if value in NOTHING:
        return None
    try:
        if not isinstance(value, (bool, float)):
            return int(value)
    except (TypeError, ValueError):
        pass
    raise ConfigurationError(f"field {field!r} must be a whole number; got {value!r}")


def number_value(field: str, value: Any) -> float | None:
    """Return the number; None if it is not given.

    :raises ConfigurationError: if the value is not a finite number.
    """
    if value in NOTHING:
        return None
    try:
        if not isinstance(value, bool) and math.isfinite(number := float(value)):
            return number
    except (TypeError, ValueError):
        pass
    raise ConfigurationError(f"field {field!r} must be a number; got {value!r}")


def bool_value(field: str, value: Any) -> bool:
    """Return the boolean.

    :raises ConfigurationError: if the value is not a boolean.
    """
    result = YES_OR_NO.get(str(value).strip().lower())
    if result is None:
        raise ConfigurationError(f"field {field!r} must be true or false; got {value!r}")
    return result


def seconds_value(field: str, value: Any) -> float | None:
    """Return a duration in seconds, given as a timedelta or a number of seconds; None if it is not given.

    :raises ConfigurationError: if the value is neither.
    """
    return value.total_seconds() if isinstance(value, timedelta) else number_value(field, value)


def names_value(field: str, value: Any, *, instead: str) -> tuple[str, ...]:
    """Return the names in a list.

    :param instead: what may be given instead of a list, for the error message.
    :raises ConfigurationError: if the value is not a list of names, or is empty.
    """
    if isinstance(value, Sequence) and value and not isinstance(value, str) and all(isinstance(n, str) for n in value):
        return tuple(value)
    raise ConfigurationError(f"field {field!r} must be {instead}, or a list of names; got {value!r}")


def existing_partition(view: SourceView, key: str) -> Partition:
    """Return a partition from the store.

    :raises ConfigurationError: if the source has no partition with this key.
    """
    partition = view.get(key)
    if partition is None:
        raise ConfigurationError(f"source {view.source!r} has no partition {key!r}; check the key in 'partition_keys'")
    return partition


def administration_of(view: SourceView, context: Context) -> Administration:
    """Return the administration that changes a source's partitions in the name of this task."""
    return Administration(view.store, view.source_identifier, view.clock, **audit_fields(context))


def audit_fields(context: Context, approved_by: str | None = None) -> dict[str, str]:
    """Return the history fields of a change by this task: `by`, the task, and `reason`, its run.

    :param approved_by: who approved the change; None if nobody had to.
    """
    ti: Any = context["ti"]
    approved = "" if approved_by is None else f", approved by {approved_by}"
    return {"by": f"{ti.dag_id}.{ti.task_id}", "reason": f"run {ti.run_id}{approved}"}


def optional_names(field: str, value: Any, *, instead: str = "the key of a partition") -> tuple[str, ...] | None:
    """Return the given names, each once; None if none is given.

    :param instead: what a single name is, for the error message.
    :raises ConfigurationError: if the value is neither a name nor a list of names.
    """
    if value in NOTHING:
        return None
    if isinstance(value, str):
        listed = _listed(value)
        if listed is None:
            return (value,)
        value = listed
    return tuple(dict.fromkeys(names_value(field, value, instead=instead)))


def _listed(text: str) -> list[Any] | None:
    """Return the list that a template rendered as this text; None if the text is a single name."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        values = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return None
    return values if isinstance(values, list) else None


class OwnCopiesMixin:
    """Base of operators with arguments that Airflow renders in place: each try renders copies. List it first."""

    own_copies: ClassVar[Sequence[str]] = ("reads",)

    def prepare_for_execution(self) -> Self:
        """Return the copy of this task that runs; it renders its own templates."""
        prepared: Self = super().prepare_for_execution()  # type: ignore[misc]
        for name in self.own_copies:
            setattr(prepared, name, own_copy(getattr(self, name)))
        return prepared
