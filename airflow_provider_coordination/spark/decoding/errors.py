"""The errors of decoding."""

from __future__ import annotations


class UndecodableError(Exception):
    """A payload cannot be decoded, so its record is bad. The text gives the reason, without content of the payload."""


class RegistryUnavailableError(ConnectionError):
    """A registry of schemas gives no answer: an outage, which no record causes, and which a job waits for."""
