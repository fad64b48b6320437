"""Names in a task's fields, such as partition keys: one name, a list, or a list that a template rendered as text.

It also provides the audit fields: a partition's history shows which task changed it.
"""

from __future__ import annotations

import ast
from typing import Any

from airflow.sdk import Context

from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.operators.template_values import names_value
from airflow_provider_coordination.settings import NOTHING


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


def audit_fields(context: Context) -> dict[str, str]:
    """Return the history fields of a change by this task: `by`, the task, and `reason`, its run."""
    ti: Any = context["ti"]
    return {"by": f"{ti.dag_id}.{ti.task_id}", "reason": f"run {ti.run_id}"}


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
