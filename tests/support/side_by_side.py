"""Runs sequentially what a job does concurrently: landing a round, and delivering the round before it.

A test that counts calls, or has a clock of its own, needs one order; whichever it is, a real job may happen on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from airflow_provider_coordination.spark import concurrency, ingestion_job


class _PendingCall(NamedTuple):
    not_done: frozenset[Future[Any]] = frozenset()


class _Delivery(Future[Any]):
    """A delivery that goes on in the thread that asks for it, or waits for it."""

    def __init__(self, act: Callable[[], Any]) -> None:
        super().__init__()
        self._act = act

    def run(self) -> None:
        if not self.done():
            try:
                self.set_result(self._act())
            except Exception as error:
                self.set_exception(error)


class _DeliveryFirst:
    """Stands for a pool of threads."""

    def __init__(self, *details: Any, **more: Any) -> None: ...

    def __enter__(self) -> _DeliveryFirst:
        return self

    def __exit__(self, *details: object) -> None: ...

    def submit(self, run: Callable[..., Any], *arguments: Any) -> _Delivery:
        delivery = _Delivery(lambda: run(*arguments))
        delivery.run()
        return delivery


class _LandingFirst(_DeliveryFirst):
    def submit(self, run: Callable[..., Any], *arguments: Any) -> _Delivery:
        return _Delivery(lambda: run(*arguments))


def _wait(deliveries: Sequence[_Delivery], timeout: float) -> _PendingCall:
    for delivery in deliveries:
        delivery.run()
    return _PendingCall()


@contextmanager
def one_after_the_other(*, lands_first: bool) -> Iterator[None]:
    """Let jobs do in one thread what they do side by side.

    :param lands_first: whether a round is landed before the one before it is delivered; after that if not.
    """
    pool = _LandingFirst if lands_first else _DeliveryFirst
    with (
        patch.object(ingestion_job, "ThreadPoolExecutor", pool),
        patch.object(ingestion_job, "wait", _wait),
        patch.object(concurrency, "ThreadPoolExecutor", _DeliveryFirst),
    ):
        yield
