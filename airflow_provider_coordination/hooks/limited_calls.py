"""Calls of a source that end in time, although the source may never respond.

The clients of sources have time limits of their own, but with all retries these are minutes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from airflow_provider_coordination.coordination.errors import SourceError

T = TypeVar("T")


class LimitedCalls:
    """Makes calls one after the other, each in a thread of its own. At most one call is left without a result."""

    def __init__(self) -> None:
        self._last: Future[Any] | None = None

    def make(self, call: Callable[[], T], seconds: float) -> T:
        """Return the result of a call.

        :param call: the call.
        :param seconds: how long to wait for its result.
        :raises SourceError: if there is no result in time, or an earlier call has none yet.
        :raises Exception: the error of the call.
        """
        if self._last is not None and not self._last.done():
            raise SourceError("the source has still not responded to an earlier request; check the source and network")
        result = self._last = Future[T]()
        threading.Thread(target=_run, args=(call, result), name="query of a source", daemon=True).start()
        wait([result], timeout=seconds)
        if not result.done():
            raise SourceError(f"the source did not respond within {seconds:g} s; check the source and the network")
        return result.result()


def _run(call: Callable[[], Any], result: Future[Any]) -> None:
    try:
        result.set_result(call())
    except BaseException as error:  # the waiting thread raises it
        result.set_exception(error)
