"""Errors of the connection between a job's Python process and Spark's JVM: the JVM was killed or crashed."""

from __future__ import annotations

import re
import traceback

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
