"""Partitions and other things that a task's fields name: one, a list, or a list as a template writes it.

And who is named where a task acts on them: the history of a partition says which task did what to it.
"""

from __future__ import annotations

import ast
from typing import Any

from airflow.sdk import Context

from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.operators.template_values import NOTHING, names_value


def named_partition(view: SourceView, key: str) -> Partition:
    """Return a partition as the store holds it.

    :raises ConfigurationError: if the source has none of this key.
    """
    partition = view.get(key)
    if partition is None:
        raise ConfigurationError(f"source {view.source!r} has no partition {key!r}; check the key")
    return partition


def by_hand(view: SourceView, context: Context) -> Administration:
    """Return what changes a source's partitions in the name of this task."""
    return Administration(view.store, view.source_identifier, view.clock, **who_and_why(context))


def who_and_why(context: Context) -> dict[str, str]:
    """Return what the history says of a change that this task makes: `by`, the task, and as `reason` its run."""
    ti: Any = context["ti"]
    return {"by": f"{ti.dag_id}.{ti.task_id}", "reason": f"run {ti.run_id}"}


def some_names(field: str, value: Any, *, instead: str = "the key of a partition") -> tuple[str, ...] | None:
    """Return the names that are given, each once, or None if none is.

    :param instead: what one name is, for the error.
    :raises ConfigurationError: if it is something else.
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
    """Return the list that a text is, as a template writes one; None if it is a name."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return None
    return found if isinstance(found, list) else None
