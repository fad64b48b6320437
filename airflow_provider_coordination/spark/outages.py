"""Outages of sinks: which errors mean that a sink is unavailable, whatever the batch.

Sinks on databases and catalogs raise `SinkUnavailableError` themselves. Errors of filesystems and object stores are
classified here: failing connections, timeouts, 403 and 5xx, a disk that is full or read-only. Tasks classify their own
errors, since only the text of an error reaches the driver.
"""

from __future__ import annotations

import errno
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.spark.delivery import SinkUnavailableError
from airflow_provider_coordination.spark.spark_errors import DriverGoneError, error_text, is_of_gateway

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
OUTAGE_TEXT = re.compile(
    r"connection (refused|reset|timed out)|could not connect|couldn't connect|error sending request|timed? ?out\b"
    r"|slow ?_?down|service ?_?unavailable|internal ?_?(failure|server ?error)"
    r"|network_connection|http status(:| code)? 5\d\d|status code:? 5\d\d",
    re.IGNORECASE,
)
"""Texts of outages in libraries that have no class or number for them."""

QUOTED = re.compile(r"'[^']*'|\w+://\S+")
"""Quoted parts of such texts: paths, which may contain any of these words."""

OF_DATA = (CoordinationError, FileNotFoundError, ValueError, TypeError, LookupError, ArithmeticError)
"""Errors about batches, files, columns and values: their texts may quote the content of a record."""
OF_SPARK = ("py4j", "pyspark")
"""The modules of Spark's errors, whose texts may quote the content of a record as well."""
OUTAGE_MARK = secrets.token_hex(8)
"""The prefix with which a task reports an outage: a random text, which a record cannot contain."""


@contextmanager
def translating_outages(sink: str) -> Iterator[None]:
    """Raise every outage within the block as one of a sink.

    :param sink: the sink's name.
    :raises SinkUnavailableError: in place of an error that means an outage.
    :raises DriverGoneError: in place of an error of the connection to Spark's JVM.
    """
    try:
        yield
    except Exception as error:
        if is_of_gateway(error):
            raise DriverGoneError from error
        if not is_outage(error) or (isinstance(error, SinkUnavailableError) and error.sink):
            raise
        reason = str(error) if isinstance(error, CoordinationError) else _said_by_task(error) or error_text(error)
        kinds = (type(each) for each in _chain(error) if isinstance(each, SinkUnavailableError))
        raise next(kinds, SinkUnavailableError)(reason, sink=sink) from error


def is_outage(error: BaseException) -> bool:
    """Return whether an error, or its cause, is an outage of a sink, which no batch caused."""
    return any(isinstance(each, SinkUnavailableError) or _says_so(each) for each in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def is_refusal(error: BaseException) -> bool:
    """Return whether an error means that access is denied, which does not change by waiting."""
    if isinstance(error, OF_DATA) or _is_of_spark(error):
        return False
    return isinstance(error, PermissionError) or REFUSED.search(_unquoted(error)) is not None


def is_temporary(error: BaseException) -> bool:
    """Return whether an error is an outage that ends by itself: none by which access is denied."""
    return is_outage(error) and not is_refusal(error)


def error_of_task(error: Exception, what: str, mark: str) -> OSError:
    """Return the error that a task raises if it cannot read or write a file, which is no record's fault.

    :param error: the original error.
    :param what: what failed.
    :param mark: the driver's `OUTAGE_MARK`.
    """
    of = f"{type(error).__name__}: {error}"
    if is_outage(error):
        return OSError(f"{mark} {what}: {of}")
    return OSError(f"{what}: {of}")


def _said_by_task(error: BaseException) -> str | None:
    """Return the reason of an outage that a task reported; None if Spark failed for another reason."""
    if not _is_of_spark(error):
        return None
    said, is_marked, what = error_text(error).partition(f"OSError: {OUTAGE_MARK} ")
    return what if is_marked and not said else None


def _is_of_spark(error: BaseException) -> bool:
    return type(error).__module__.startswith(OF_SPARK) or is_of_gateway(error)


def _says_so(error: BaseException) -> bool:
    if isinstance(error, OF_DATA):
        return False
    if _is_of_spark(error):
        return _said_by_task(error) is not None
    if isinstance(error, ConnectionError | TimeoutError) or getattr(error, "errno", None) in ERRNOS:
        return True
    return is_refusal(error) or OUTAGE_TEXT.search(_unquoted(error)) is not None


def _unquoted(error: BaseException) -> str:
    return QUOTED.sub("", str(error))
