"""Hides secrets in a job's output, log, summary and errors, which reach the store and Airflow.

Errors of database drivers, services and users' code may contain any of their arguments, and spark-submit may print its
whole configuration.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.spark.ingestion import OPTIONS
from airflow_provider_coordination.spark.membership import current_membership
from airflow_provider_coordination.spark.settings import ApplicationSettings, IngestSettings
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.stores.redaction import longest_first, redact, secrets_of, without_likely_secrets

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
SECRET_NAME = re.compile(r"passw|secret|token|credential|api_?key|private_?key|authorization|signature", re.IGNORECASE)
MIN_CHARACTERS = 6
"""A shorter secret is not hidden: it would be found inside harmless words."""


class Redaction:
    """Hides secrets anywhere in a text: known secrets, and texts that look like a secret.

    :param holders: the objects that contain the known secrets: the job's settings, store settings, or JSON values such
        as an environment, a Spark configuration and a command line.
    """

    def __init__(self, *holders: object) -> None:
        known = {secret for holder in holders for secret in _secrets_in(holder)}
        spelled = {each for secret in known for each in _spellings(secret)}
        self._secrets = longest_first(secret for secret in spelled if len(secret) >= MIN_CHARACTERS)

    def with_secrets_of(self, *holders: object) -> Redaction:
        """Return a redaction that hides the secrets of further objects as well."""
        both = Redaction(*holders)
        both._secrets = longest_first([*both._secrets, *self._secrets])
        return both

    def text(self, text: str) -> str:
        """Return a text with its secrets replaced."""
        return without_likely_secrets(redact(text, self._secrets))

    def mapping(self, mapping: Mapping[str, Any]) -> dict[str, Any]:
        """Return a JSON object with the secrets in its texts replaced."""
        return {self.text(name): self._value(value) for name, value in mapping.items()}

    def _value(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return self.mapping(value)
        if isinstance(value, list | tuple):
            return [self._value(each) for each in value]
        return self.text(value) if isinstance(value, str) else value

    def install(self) -> None:
        """Hide the secrets in everything that is logged from now on, including tracebacks."""
        for handler in logging.getLogger().handlers:
            handler.setFormatter(_Formatter(self))


OF_READING = {"source", "leases", "rounds", "rejection"}
"""The options that do not decide what becomes of a landed batch."""


def delivery_digest(settings: IngestSettings) -> str:
    """Return a digest by which other jobs see whether they deliver landed batches alike; it contains no secrets."""
    written = write_settings(settings)
    names = {"reads", "writes", *OPTIONS} - OF_READING
    described = Redaction(settings).mapping({name: written[name] for name in names})
    return hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()[:16]


class _Formatter(logging.Formatter):
    def __init__(self, redaction: Redaction) -> None:
        super().__init__(LOG_FORMAT.replace("%(message)s", "%(member)s%(message)s"))
        self._redaction = redaction

    def format(self, record: logging.LogRecord) -> str:
        member = current_membership()
        record.member = "" if member is None else f"[{member.source}] "
        return self._redaction.text(super().format(record))


def _secrets_in(holder: object) -> Iterator[str]:
    if isinstance(holder, ApplicationSettings):
        yield from secrets_of(holder.store)
    if isinstance(holder, StoreSettings):
        yield from secrets_of(holder)
    yield from _named_secrets(write_settings(holder) if dataclasses.is_dataclass(holder) else holder)


def _spellings(secret: str) -> Iterator[str]:
    """Yield a secret unchanged, and in the spellings of URLs, JSON and Python."""
    yield secret
    for quoted in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield quoted
        yield re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), quoted)
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])


def _named_secrets(value: object, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the texts of a JSON value whose name, or an enclosing name, marks them as secret.

    The passwords of URLs are yielded whatever their name is.
    """
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from _named_secrets(below, is_secret=is_secret or bool(SECRET_NAME.search(str(name))))
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _named_secrets(below, is_secret=is_secret)
    elif isinstance(value, str):
        if is_secret:
            yield value
            yield from re.split(r"[:\s]+", value, maxsplit=1)[1:]  # of `name:password`, and of `Bearer <token>`
        yield from re.findall(r"://[^\s:/@'\"]*:([^\s'\"]*)@", value)
        yield from re.findall(r"(?i)[?&;](?:password|pwd|secret|token)=([^&;\s]+)", value)
        name, _, assigned = value.partition("=")
        if re.fullmatch(r"[\w.-]+", name) and SECRET_NAME.search(name):
            yield assigned
