"""Something that went wrong, as jobs report it and supervisors remember it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.partition import format_instant, read_instant

MAX_MESSAGE_CHARACTERS = 1000


@dataclass(frozen=True, kw_only=True)
class ErrorEvent:
    """Something that went wrong.

    :param at: when (aware).
    :param error_class: the class of the error, or of its cause, by its name.
    :param message: what it says, without secrets.
    :param partition: the shard, or other partition, that it is about; None if it is about none alone.
    :param owner: the job that it happened in; None if it happened in the supervisor.
    :param is_stream_error: whether the source did not answer, or answered with an error.
    """

    at: datetime
    error_class: str
    message: str
    partition: str | None = None
    owner: str | None = None
    is_stream_error: bool = False

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object."""
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
        """Return it from a JSON object; None if it does not say when."""
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
