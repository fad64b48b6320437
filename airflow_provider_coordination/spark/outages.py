"""Outages of sinks: which errors say that a sink takes nothing, whatever batch it is given.

A database or a catalog that does not answer says so by a `SinkAwayError`. What filesystems and object stores raise is
judged here: connections that fail, answers that time out, 403 and 5xx, a disk that is full or read-only. Tasks judge
what they meet themselves, since only the text of an error reaches the driver.
"""

from __future__ import annotations

import errno
import re
import secrets
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
REFUSED = re.compile(r"access ?_?denied|forbidden|http status(:| code)? 403|status code:? 403", re.IGNORECASE)
SAID = re.compile(
    r"connection (refused|reset|timed out)|could not connect|couldn't connect|error sending request|timed? ?out\b"
    r"|slow ?_?down|service ?_?unavailable|internal ?_?(failure|server ?error)"
    r"|network_connection|http status(:| code)? 5\d\d|status code:? 5\d\d",
    re.IGNORECASE,
)
"""What libraries say of such errors that have no class or number for them."""

QUOTED = re.compile(r"'[^']*'|\w+://\S+")
"""What such texts quote: paths, which may have any of these words in them."""

OF_DATA = (CoordinationError, FileNotFoundError, ValueError, TypeError, LookupError, ArithmeticError)
"""Errors that speak of batches, files, columns and values: their texts may quote what a record says."""
OF_SPARK = ("py4j", "pyspark")
"""The modules of errors of which the same holds."""
MARK = secrets.token_hex(8)
"""How a task begins what it says of an outage: nobody knows the word who writes a record."""


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
        reason = str(error) if isinstance(error, CoordinationError) else _said_by_task(error) or error_text(error)
        raise SinkAwayError(reason, sink=sink) from error


def is_outage(error: BaseException) -> bool:
    """Return whether an error, or what it was raised from, is a sink's own, and no batch's."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SinkAwayError) or _says_so(cause):
            return True
        cause = cause.__cause__
    return False


def is_refusal(error: BaseException) -> bool:
    """Return whether an error says that something may not be done, which waiting alone does not change."""
    if isinstance(error, OF_DATA) or _is_of_spark(error):
        return False
    return isinstance(error, PermissionError) or REFUSED.search(_unquoted(error)) is not None


def error_of_task(error: Exception, what: str, mark: str) -> OSError:
    """Return what a task raises where it cannot read or write a file, which no record is to blame for.

    :param error: what was raised there.
    :param what: what cannot be done.
    :param mark: the driver's `MARK`.
    """
    of = f"{type(error).__name__}: {error}"
    if is_outage(error):
        return OSError(f"{mark} {what}: {of}")
    return OSError(f"{what}: {of}")


def _said_by_task(error: BaseException) -> str | None:
    """Return what a task says of an outage; None if that is not what Spark failed by."""
    if not _is_of_spark(error):
        return None
    said, is_marked, what = error_text(error).partition(f"OSError: {MARK} ")
    return what if is_marked and not said else None


def _is_of_spark(error: BaseException) -> bool:
    return type(error).__module__.startswith(OF_SPARK)


def _says_so(error: BaseException) -> bool:
    if isinstance(error, OF_DATA):
        return False
    if _is_of_spark(error):
        return _said_by_task(error) is not None
    if isinstance(error, ConnectionError | TimeoutError) or getattr(error, "errno", None) in ERRNOS:
        return True
    return is_refusal(error) or SAID.search(_unquoted(error)) is not None


def _unquoted(error: BaseException) -> str:
    return QUOTED.sub("", str(error))
