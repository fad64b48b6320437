"""Removing secrets from specs that are shown. Secrets belong in connections, but a spec may contain some."""

from __future__ import annotations

from typing import Any

from airflow_provider_coordination.spark.redaction import SECRET_NAME
from airflow_provider_coordination.stores.redaction import HIDDEN, without_likely_secrets


def without_secrets(value: Any, *, is_secret: bool = False) -> Any:
    """Return a JSON value without secrets: values with the name of a secret, and text that looks like one.

    :param is_secret: whether the value has the name of a secret.
    """
    if isinstance(value, dict):
        return {
            name: without_secrets(each, is_secret=is_secret or bool(SECRET_NAME.search(str(name))))
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(each, is_secret=is_secret) for each in value]
    if isinstance(value, str):
        return HIDDEN if is_secret else without_likely_secrets(value)
    return value
