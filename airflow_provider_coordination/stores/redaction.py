"""Texts without secrets: what errors of drivers and of people say may hold a password."""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.stores import StoreSettings

HIDDEN = "***"

_URL_PASSWORD = re.compile(r"(://[^\s:/@'\"]*):[^\s'\"]*@")
# The password ends at the last @ before the path, a space or a quote: it may itself hold one.
_AWS_KEY_PAIR = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}(\W{1,3})[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
_AWS_KEY_ID = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")
_AWS_SESSION_TOKEN = re.compile(r"\b(?:FQoGZX|FwoGZX|IQoJb3JpZ2lu)[A-Za-z0-9/+=%_-]{50,}")
_NAMED = re.compile(
    r"""(?ix)
    (?<! [\w.-] )                                  # at the beginning of a name alone: quick on a long one, too
    ( [\w.-]* (?: passw(?:or)?d | secret | credential | signature | (?:access|auth|security|session)[._-]?token
                | (?:access|account|api|private|secret)[._-]?key ) [\w.-]* )
    ( \s*=\s*["']? | ["']\s*:\s*["'] | [:,] )      # name=value, "name": "value", name:value, (name,value)
    ( (?!\*\*\*) [^\s"'&;,(){}\[\]]{6,} )
    """
)
"""A value whose name says that it is secret. Shorter ones are words, such as `none`."""


def without_secrets(text: str, settings: StoreSettings | None = None) -> str:
    """Return a text for people, with the passwords of URLs in it replaced.

    :param text: an error of whatever origin.
    :param settings: whose password is replaced wherever it stands, as it was given and as URLs spell it.
    """
    if settings is not None:
        text = hiding(text, secrets_of(settings))
    return _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text)


def without_likely_secrets(text: str) -> str:
    """Return the output of a program of any kind, with what looks like a secret replaced.

    Secrets that nobody here knows are found by their form: passwords of URLs, AWS keys and session tokens, and values
    whose name says what they are, as in `fs.s3a.secret.key=…`.
    """
    text = _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text)
    text = _AWS_KEY_PAIR.sub(rf"{HIDDEN}\1{HIDDEN}", text)
    text = _AWS_SESSION_TOKEN.sub(HIDDEN, _AWS_KEY_ID.sub(HIDDEN, text))
    return _NAMED.sub(rf"\1\2{HIDDEN}", text)


def hiding(text: str, secrets: Iterable[str]) -> str:
    """Return a text with secrets in it replaced.

    :param secrets: the longest first, where one may be part of another.
    """
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def secrets_of(settings: StoreSettings) -> list[str]:
    """Return the secrets of a store's settings, in each way in which they may be spelled, the longest first.

    Of settings that cannot be understood, all texts are.
    """
    try:
        return longest_first(settings.implemented.secrets(settings.own))
    except ConfigurationError:
        return longest_first(value for value in settings.settings.values() if isinstance(value, str))


def longest_first(secrets: Iterable[str]) -> list[str]:
    """Return the secrets that are not empty, the longest first: one may be part of another."""
    return sorted(set(secrets) - {""}, key=len, reverse=True)
