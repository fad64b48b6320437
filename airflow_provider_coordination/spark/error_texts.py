"""Errors as one line of text: Spark's errors contain the tracebacks of Python and the JVM."""

from __future__ import annotations

import re
import traceback


def error_text(error: BaseException) -> str:
    """Return an error as one line, without the tracebacks of Python and the JVM."""
    if raised := raised_in_python(str(error)):
        return raised
    of_java = getattr(error, "java_exception", None)
    text = str(error) if of_java is None else str(of_java.toString())
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if of_java is not None else f"{type(error).__name__}: {line}"


def root_cause(error: BaseException) -> str:
    """Return the innermost cause of an error of the JVM, as one line; empty for other errors, or if it is the error."""
    outer = cause = getattr(error, "java_exception", None)
    while cause is not None and (inner := cause.getCause()) is not None:
        cause = inner
    return "" if cause is None or cause is outer else str(cause.toString()).partition("\n")[0].strip()


def raised_in_python(text: str) -> str:
    """Return the last line of a Python traceback, `<exception>: <message>`; empty if there is no traceback."""
    lines = text.splitlines()
    frames = [n for n, line in enumerate(lines) if line.startswith('  File "')]
    after = lines[frames[-1] + 1 :] if frames else []
    return next((line.strip() for line in after if line.strip() and not line.startswith(" ")), "")


GATEWAY = ("py4j", "pyspark")
"""The packages that hold the connection."""
WITHOUT_RESPONSE = re.compile(r"An error occurred while calling \S+")
"""The whole text of py4j's error if a call gets no response. With a response, the error of Java follows."""


def is_of_gateway(error: BaseException) -> bool:
    """Return whether an error means that Spark's JVM does not respond: a sink's connections are not py4j's."""
    if isinstance(error, ConnectionError | EOFError):
        frames = traceback.walk_tb(error.__traceback__)
        return any(frame.f_globals.get("__name__", "").partition(".")[0] in GATEWAY for frame, _ in frames)
    if type(error).__module__ != "py4j.protocol":
        return False
    return type(error).__name__ == "Py4JNetworkError" or WITHOUT_RESPONSE.fullmatch(str(error)) is not None
