"""The checks of `airflow-coordination doctor`: one module per topic, each of which yields findings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckStatus(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    UNCHECKED = "not checked"


@dataclass(frozen=True)
class Finding:
    """One line of a diagnosis.

    :param status: the result of the check.
    :param topic: the topic in one word, such as `store`.
    :param text: what was found; holds no secret.
    :param remedy: what to do about it; empty if nothing.
    """

    status: CheckStatus
    topic: str
    text: str
    remedy: str = ""


def ok(topic: str, text: str) -> Finding:
    """Return the finding that a check succeeded."""
    return Finding(CheckStatus.OK, topic, text)


def warning(topic: str, text: str, remedy: str) -> Finding:
    """Return the finding of a possible problem."""
    return Finding(CheckStatus.WARNING, topic, text, remedy)


def error(topic: str, text: str, remedy: str = "") -> Finding:
    """Return the finding of an error. A text that names the remedy needs no separate one."""
    return Finding(CheckStatus.ERROR, topic, text, remedy)


def unchecked(topic: str, text: str, remedy: str = "") -> Finding:
    """Return the finding that a check was not possible, or not without side effects."""
    return Finding(CheckStatus.UNCHECKED, topic, text, remedy)
