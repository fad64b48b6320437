"""What a job says, without the secrets that it knows: its log, its summary and its errors leave the driver.

The errors of drivers, of services and of users' own code may hold anything that they were given.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.stores.hiding import hiding, longest_first, secrets_of

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
SECRET_NAME = re.compile(r"passw|secret|token|credential|api_?key|private_?key|authorization|signature", re.IGNORECASE)
FEWEST_CHARACTERS = 6
"""A shorter secret is left alone: it would be found in the middle of words that tell nothing."""


class Redaction:
    """Hides the secrets of a job's settings wherever they stand in a text.

    :param settings: the job's.
    """

    def __init__(self, settings: IngestSettings) -> None:
        kinesis = settings.kinesis
        known = {kinesis.secret_access_key or "", kinesis.session_token or "", *secrets_of(settings.store)}
        if settings.reader is not None:
            known |= set(_named_secrets(settings.reader.settings))
        spelled = {each for secret in known for each in (secret, quote(secret, safe=""), quote_plus(secret))}
        spelled |= {json.dumps(secret)[1:-1] for secret in known}
        self._secrets = longest_first(secret for secret in spelled if len(secret) >= FEWEST_CHARACTERS)

    def text(self, text: str) -> str:
        """Return a text with the secrets in it replaced."""
        return hiding(text, self._secrets)

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
        """Hide the secrets in everything that is logged from now on, tracebacks included."""
        for handler in logging.getLogger().handlers:
            handler.setFormatter(_Formatter(self))


class _Formatter(logging.Formatter):
    def __init__(self, redaction: Redaction) -> None:
        super().__init__(LOG_FORMAT)
        self._redaction = redaction

    def format(self, record: logging.LogRecord) -> str:
        return self._redaction.text(super().format(record))


def _named_secrets(value: object, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the texts of a JSON value whose name, or that of what holds them, says that they are secret.

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
        yield from re.findall(r"://[^\s:/@'\"]*:([^\s'\"]*)@", value)
        yield from re.findall(r"(?i)[?&;](?:password|pwd|secret|token)=([^&;\s]+)", value)
