"""Errors for arguments that are wrong as soon as a DAG is parsed, before any template is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_coordination.spark.settings import check_function


def check_parsed(callee: str, arguments: Mapping[str, Any]) -> None:
    """Check the arguments of a job that are known without a connection.

    Airflow calls a function that it finds in a templated field, so a function in place of its name must not get there.

    :param callee: the class that has the arguments.
    :param arguments: the arguments, by name; a template is checked when its task runs.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    if callable(arguments.get("transform")):
        check_function(f"{callee}: field 'transform'", arguments["transform"])
