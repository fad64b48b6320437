"""What was found about one thing that an installation needs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How it stands with a thing."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    UNCHECKED = "not checked"


@dataclass(frozen=True)
class Finding:
    """One line of a diagnosis.

    :param verdict: how it stands.
    :param topic: what it belongs to, in a word.
    :param text: what was found; holds no secret.
    :param remedy: what to do about it; empty where there is nothing to do.
    """

    verdict: Verdict
    topic: str
    text: str
    remedy: str = ""


def ok(topic: str, text: str) -> Finding:
    """Return that all is well."""
    return Finding(Verdict.OK, topic, text)


def warning(topic: str, text: str, remedy: str) -> Finding:
    """Return what may become a problem."""
    return Finding(Verdict.WARNING, topic, text, remedy)


def error(topic: str, text: str, remedy: str = "") -> Finding:
    """Return what keeps something from working; a text that names its remedy itself needs none."""
    return Finding(Verdict.ERROR, topic, text, remedy)


def unchecked(topic: str, text: str, remedy: str = "") -> Finding:
    """Return what could not be looked at, or not without doing harm."""
    return Finding(Verdict.UNCHECKED, topic, text, remedy)
