"""Errors for arguments that are wrong as soon as a DAG is parsed, before any template is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_coordination.operators.template_values import text_value
from airflow_provider_coordination.spark.settings import check_absolute, check_folders, check_function, is_template


def check_parsed(callee: str, arguments: Mapping[str, Any]) -> None:
    """Check the arguments of a job that are known without a connection.

    Airflow calls a function that it finds in a templated field, so a function in place of its name must not get there.

    :param callee: the class that has the arguments.
    :param arguments: the arguments, by name; a template is checked when its task runs.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if callable(arguments.get("transform")):
        check_function(f"{callee}: field 'transform'", arguments["transform"])
    on_bad_records, writes = arguments.get("on_bad_records"), arguments.get("writes")
    check_folders(_given(arguments.get("landing_path")), _given(getattr(on_bad_records, "dead_letter_path", None)))
    for sink in writes if isinstance(writes, list | tuple) else (writes,):
        folder = _given(getattr(sink, "landing_path", None))
        if folder is not None and not is_template(folder):
            check_absolute(f"the folder of {type(sink).__name__} in field 'writes'", folder.removesuffix("/_landing"))


def _given(value: object) -> str | None:
    return text_value(value) if isinstance(value, str) else None
