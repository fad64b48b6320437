"""Error events, which jobs report and supervisors remember."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.partition import format_instant, read_instant

MAX_MESSAGE_CHARACTERS = 1000


@dataclass(frozen=True, kw_only=True)
class ErrorEvent:
    """An error in a job or a supervisor.

    :param at: when it happened (aware).
    :param error_class: the class name of the error, or of its cause.
    :param message: the error's message, without secrets.
    :param partition: the shard or other partition that it concerns; None if it concerns no single partition.
    :param owner: the job in which it happened; None if it happened in the supervisor.
    :param is_stream_error: whether the source was unavailable or returned an error.
    """

    at: datetime
    error_class: str
    message: str
    partition: str | None = None
    owner: str | None = None
    is_stream_error: bool = False

    def to_mapping(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        return {
            "at": format_instant(self.at),
            "error_class": self.error_class,
            "message": self.message[:MAX_MESSAGE_CHARACTERS],
            "partition": self.partition,
            "owner": self.owner,
            "is_stream_error": self.is_stream_error,
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> ErrorEvent | None:
        """Return the event from a JSON object; None if that has no valid `at`."""
        at = read_instant(mapping.get("at"))
        if at is None:
            return None
        partition, owner = mapping.get("partition"), mapping.get("owner")
        return cls(
            at=at,
            error_class=str(mapping.get("error_class", "")),
            message=str(mapping.get("message", "")),
            partition=partition if isinstance(partition, str) else None,
            owner=owner if isinstance(owner, str) else None,
            is_stream_error=mapping.get("is_stream_error") is True,
        )
