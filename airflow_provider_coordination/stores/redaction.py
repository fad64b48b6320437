"""Removes secrets from texts: errors of drivers and texts of users may contain a password."""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.stores import StoreSettings

HIDDEN = "***"

_URL_PASSWORD = re.compile(r"(://[^\s:/@'\"]*):[^\s'\"]*@")
# The password ends at the last @ before the path, a space or a quote, because it may contain @ itself.
_AWS_KEY_PAIR = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}(\W{1,3})[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
_AWS_KEY_ID = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")
_AWS_SESSION_TOKEN = re.compile(r"\b(?:FQoGZX|FwoGZX|IQoJb3JpZ2lu)[A-Za-z0-9/+=%_-]{50,}")
_NAMED = re.compile(
    r"""(?ix)
    (?<! [\w.-] )                                  # only at the start of a name: fast for long names
    ( [\w.-]* (?: passw(?:or)?d | secret | credential | signature | (?:access|auth|security|session)[._-]?token
                | (?:access|account|api|private|secret)[._-]?key ) [\w.-]* )
    ( \s*=\s*["']? | ["']\s*:\s*["'] | [:,] )      # name=value, "name": "value", name:value, (name,value)
    ( (?!\*\*\*) [^\s"'&;,(){}\[\]]{6,} )
    """
)
"""A value whose name marks it as secret. Shorter values are words, such as `none`."""


def without_secrets(text: str, settings: StoreSettings | None = None) -> str:
    """Return a text for users in which the passwords of URLs are replaced.

    :param text: an error of any origin.
    :param settings: the store settings whose secrets are replaced as well, in plain and in URL-encoded form.
    """
    if settings is not None:
        text = redact(text, secrets_of(settings))
    return _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text)


def without_likely_secrets(text: str) -> str:
    """Return the output of any program in which everything that looks like a secret is replaced.

    Unknown secrets are found by their form: passwords of URLs, AWS keys and session tokens, and values whose name
    marks them as secret, as in `fs.s3a.secret.key=…`.
    """
    text = _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text)
    text = _AWS_KEY_PAIR.sub(rf"{HIDDEN}\1{HIDDEN}", text)
    text = _AWS_SESSION_TOKEN.sub(HIDDEN, _AWS_KEY_ID.sub(HIDDEN, text))
    return _NAMED.sub(rf"\1\2{HIDDEN}", text)


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return a text in which the secrets are replaced.

    :param secrets: the secrets, the longest first if one may be part of another.
    """
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def secrets_of(settings: StoreSettings) -> list[str]:
    """Return the secrets of a store's settings in every form, the longest first.

    If the settings are not valid, every text in them is treated as a secret.
    """
    try:
        return longest_first(settings.loaded_kind.secrets(settings.own))
    except ConfigurationError:
        return longest_first(value for value in settings.settings.values() if isinstance(value, str))


def longest_first(secrets: Iterable[str]) -> list[str]:
    """Return the non-empty secrets, the longest first, because one may be part of another."""
    return sorted(set(secrets) - {""}, key=len, reverse=True)
