"""The AWS permissions that the documentation lists, and a harmless test of each one.

A call without permission is refused before AWS checks anything else. So a call that cannot succeed, such as a write
whose condition never holds, proves its permission by the error that it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from airflow_provider_coordination.aws import ACCESS_CODES


class Proof(Enum):
    """The result of testing a permission."""

    ALLOWED = "allowed"
    DENIED = "denied"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Permission:
    """One permission.

    :param action: the action in policies, such as `kinesis:GetRecords`.
    :param resource: the ARN, or a display name if the ARN is unknown.
    :param call: makes a harmless call that needs the permission; None if there is no such call at present.
    :param is_needed: whether jobs fail without it.
    """

    action: str
    resource: str
    call: Callable[[], object] | None = None
    is_needed: bool = True


def prove(call: Callable[[], object]) -> tuple[Proof, str]:
    """Make a call; return its result, and the service's message if the permission is not proven."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        call()
    except ClientError as error:
        details = error.response.get("Error", {})
        if details.get("Code") in ACCESS_CODES:
            return Proof.DENIED, str(details.get("Message", ""))
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
            return Proof.UNKNOWN, str(details.get("Message", ""))
        return Proof.ALLOWED, ""
    except BotoCoreError as error:
        return Proof.UNKNOWN, str(error)
    return Proof.ALLOWED, ""
