"""Versions of a spec for display: author, reason and kind of change. Secrets are hidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.stores.redaction import HIDDEN
from airflow_provider_coordination.supervisor.redaction import without_secrets
from airflow_provider_coordination.supervisor.spec import IngestionSpec, change_between
from airflow_provider_coordination.supervisor.supervision import SpecVersion


def version_mapping(version: SpecVersion, before: SpecVersion | None) -> dict[str, Any]:
    """Return a version as a JSON object.

    :param before: the version before it; None if there is none or it is unknown.
    """
    return {
        "version": version.version,
        "at": format_instant(version.submitted_at),
        "by": version.by,
        "reason": version.reason,
        "is_termination": version.is_termination,
        "is_from_file": version.file_digest is not None,
        "change": _change(version, before),
        "spec": None if version.spec is None else without_secrets(dict(version.spec)),
    }


def history_mapping(versions: Sequence[SpecVersion]) -> list[dict[str, Any]]:
    """Return versions as JSON objects.

    :param versions: consecutive versions, the latest first.
    """
    return [version_mapping(version, before) for version, before in zip(versions, [*versions[1:], None], strict=True)]


def effective_spec(version: SpecVersion) -> tuple[dict[str, Any] | None, str]:
    """Return a spec with all defaults, or the reason why it cannot be read; neither for a termination."""
    if version.spec is None:
        return None, ""
    try:
        return IngestionSpec.read(version.spec).effective(), ""
    except ConfigurationError as error:
        return None, str(error)


def readable_spec(version: SpecVersion | None) -> IngestionSpec | None:
    """Return a spec; None if there is none or this version of the package cannot read it."""
    if version is None or version.spec is None:
        return None
    try:
        return IngestionSpec.read(version.spec)
    except ConfigurationError:
        return None


def restore_hidden(value: Any, previous: Any, path: str = "") -> Any:
    """Return a submitted spec with its hidden secrets restored from the stored spec.

    :param value: the submitted value at this path.
    :param previous: the stored value at this path.
    :raises ConfigurationError: if a hidden value is not stored.
    """
    if isinstance(value, dict):
        known = previous if isinstance(previous, dict) else {}
        return {
            name: restore_hidden(each, known.get(name), f"{path}.{name}" if path else str(name))
            for name, each in value.items()
        }
    if isinstance(value, list):
        known_items = previous if isinstance(previous, list) and len(previous) == len(value) else [None] * len(value)
        return [
            restore_hidden(each, known, f"{path}.{number}")
            for number, (each, known) in enumerate(zip(value, known_items, strict=True))
        ]
    if not isinstance(value, str) or HIDDEN not in value:
        return value
    if isinstance(previous, str) and value in (without_secrets(previous), without_secrets(previous, is_secret=True)):
        return previous
    raise ConfigurationError(
        f"spec: field {path!r} is hidden as {value!r}, but no value is stored; write the value, or use a connection"
    )


def _change(version: SpecVersion, before: SpecVersion | None) -> str | None:
    """Return the kind of change of a version; None if it is a termination or unknown."""
    spec = readable_spec(version)
    if spec is None or (before is None and version.version > 1):
        return None
    return change_between(readable_spec(before), spec).name
