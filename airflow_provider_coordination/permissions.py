"""Permissions of AWS that the documentation asks for, and how each is proven without doing harm.

A call that is not allowed is refused before anything else is looked at. So a call that cannot succeed, such as a write
whose condition never holds, proves its permission by the error it is answered with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from airflow_provider_coordination.aws import ACCESS_CODES


class Proof(Enum):
    """What a call proved of a permission."""

    ALLOWED = "allowed"
    DENIED = "denied"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Permission:
    """One permission.

    :param action: as policies name it, such as `kinesis:GetRecords`.
    :param resource: the ARN, or what people call it where the ARN is not known.
    :param call: makes a harmless call that needs it; None if there is none, or not now.
    :param is_needed: whether jobs fail without it.
    """

    action: str
    resource: str
    call: Callable[[], object] | None = None
    is_needed: bool = True


def prove(call: Callable[[], object]) -> tuple[Proof, str]:
    """Make a call; return what it proved, and what was said where that matters."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        call()
    except ClientError as error:
        answer = error.response.get("Error", {})
        if answer.get("Code") in ACCESS_CODES:
            return Proof.DENIED, str(answer.get("Message", ""))
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
            return Proof.UNKNOWN, str(answer.get("Message", ""))
        return Proof.ALLOWED, ""
    except BotoCoreError as error:
        return Proof.UNKNOWN, str(error)
    return Proof.ALLOWED, ""
