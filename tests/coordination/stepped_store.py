"""A store that can be stopped at any of its calls: before it, or after it and before its response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.coordination.store import CoordinationStore

CALLS = frozenset({"acquire", "create", "delete", "get", "get_many", "existing_keys", "query", "transact"})


class ProcessKilled(BaseException):
    """The process is gone: nothing of it is done any more."""


class SteppedStore:
    """Another store, in which something happens at the call of a given number.

    :param store: the store.
    :param at: the number of the call, from 0; None for never.
    :param before: runs before that call is made.
    :param answers: whether that call is answered; it is made in any case.
    """

    def __init__(
        self,
        store: CoordinationStore,
        *,
        at: int | None = None,
        before: Callable[[], object] = lambda: None,
        answers: bool = True,
    ) -> None:
        self._store = store
        self._left = at
        self._before = before
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if name not in CALLS or self._left is None:
            return attribute
        left, self._left = self._left, self._left - 1 if self._left else None
        return attribute if left else self._stopped(attribute)

    def _stopped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def stopped(*arguments: Any, **named: Any) -> Any:
            self._before()
            answer = call(*arguments, **named)
            if not self._answers:
                raise StoreUnavailableError("connection reset")
            return answer

        return stopped


def killed() -> None:
    """Be killed here."""
    raise ProcessKilled
