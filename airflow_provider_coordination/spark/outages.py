"""Outages of sinks: which errors say that a sink takes nothing, whatever batch it is given.

A database or a catalog that does not answer says so by a `SinkAwayError`. What filesystems and object stores raise is
judged here: connections that fail, answers that time out, 403 and 5xx, a disk that is full or read-only.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.spark.delivery import SinkAwayError
from airflow_provider_coordination.spark.error_texts import error_text

ERRNOS = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EDQUOT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EIO,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOSPC,
        errno.ENOTCONN,
        errno.EROFS,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
SAID = re.compile(
    r"connection (refused|reset|timed out)|could not connect|couldn't connect|error sending request|timed? ?out\b"
    r"|access ?_?denied|forbidden|slow ?_?down|service ?_?unavailable|internal ?_?(failure|server ?error)"
    r"|network_connection|http status(:| code)? (403|5\d\d)|status code:? (403|5\d\d)",
    re.IGNORECASE,
)
"""What libraries say of such errors that have no class or number for them."""

OF_DATA = (CoordinationError, FileNotFoundError, ValueError, TypeError, LookupError, ArithmeticError)
"""Errors that speak of batches, files, columns and values: their texts may quote what a record says."""
OF_SPARK = ("py4j", "pyspark")
"""The modules of errors of which the same holds."""


@contextmanager
def calling(sink: str) -> Iterator[None]:
    """Say of an outage which sink it is of.

    :param sink: its name.
    :raises SinkAwayError: in place of what says that the sink takes nothing at present.
    """
    try:
        yield
    except Exception as error:
        if not is_outage(error) or (isinstance(error, SinkAwayError) and error.sink):
            raise
        reason = str(error) if isinstance(error, CoordinationError) else error_text(error)
        raise SinkAwayError(f"sink {sink!r} takes nothing at present: {reason}", sink=sink) from error


def is_outage(error: BaseException) -> bool:
    """Return whether an error, or what it was raised from, is a sink's own, and no batch's."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SinkAwayError) or _says_so(cause):
            return True
        cause = cause.__cause__
    return False


def _says_so(error: BaseException) -> bool:
    if isinstance(error, OF_DATA) or type(error).__module__.startswith(OF_SPARK):
        return False
    if isinstance(error, ConnectionError | TimeoutError | PermissionError):
        return True
    return getattr(error, "errno", None) in ERRNOS or SAID.search(str(error)) is not None
