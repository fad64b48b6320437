"""Versions of a spec for people: who submitted what, why, and what it changed. Secrets are hidden."""

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

    :param before: the version before it; None if there is none, or it is not known.
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

    :param versions: the latest first, without gaps.
    """
    return [version_mapping(version, before) for version, before in zip(versions, [*versions[1:], None], strict=True)]


def effective_spec(version: SpecVersion) -> tuple[dict[str, Any] | None, str]:
    """Return a spec with every default, and why it cannot be read, one of which there is; neither of a termination."""
    if version.spec is None:
        return None, ""
    try:
        return IngestionSpec.read(version.spec).effective(), ""
    except ConfigurationError as error:
        return None, str(error)


def readable(version: SpecVersion | None) -> IngestionSpec | None:
    """Return a spec; None if there is none, or it cannot be read by this version of the package."""
    if version is None or version.spec is None:
        return None
    try:
        return IngestionSpec.read(version.spec)
    except ConfigurationError:
        return None


def with_hidden(value: Any, former: Any, path: str = "") -> Any:
    """Return a spec that was made from one with hidden secrets, with the secrets that were hidden in it.

    :param value: what was submitted, at this place.
    :param former: what is stored there.
    :raises ConfigurationError: if something is hidden that is not stored.
    """
    if isinstance(value, dict):
        known = former if isinstance(former, dict) else {}
        return {
            name: with_hidden(each, known.get(name), f"{path}.{name}" if path else str(name))
            for name, each in value.items()
        }
    if isinstance(value, list):
        known_items = former if isinstance(former, list) and len(former) == len(value) else [None] * len(value)
        return [
            with_hidden(each, known, f"{path}.{number}")
            for number, (each, known) in enumerate(zip(value, known_items, strict=True))
        ]
    if not isinstance(value, str) or HIDDEN not in value:
        return value
    if isinstance(former, str) and value in (without_secrets(former), without_secrets(former, is_secret=True)):
        return former
    raise ConfigurationError(
        f"spec: field {path!r} is hidden, {value!r}, and nothing is stored there; write it, or keep it in a connection"
    )


def _change(version: SpecVersion, before: SpecVersion | None) -> str | None:
    """Return what a version changed; None if it is a termination, or that is not known."""
    spec = readable(version)
    if spec is None or (before is None and version.version > 1):
        return None
    return change_between(readable(before), spec).name
