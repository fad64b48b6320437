"""Concurrent calls: calls to a bucket mostly wait."""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(
    items: Iterable[Item], act: Callable[[Item], Result], at_once: int
) -> Iterator[tuple[Item, Result | Exception]]:
    """Act on each item, several at the same time; yield each item with its result or error, in their order.

    Leaving the iteration early waits for the running calls.

    :param at_once: the maximum number of results that are being made or wait to be taken.
    """
    every = list(items)
    if at_once <= 1 or len(every) <= 1:
        for item in every:
            yield item, _result(act, item)
        return
    with ThreadPoolExecutor(min(at_once, len(every))) as pool:
        under_way: deque[tuple[Item, Future[Result | Exception]]] = deque()
        for item in every:
            if len(under_way) == at_once:
                done, future = under_way.popleft()
                yield done, future.result()
            under_way.append((item, pool.submit(contextvars.copy_context().run, _result, act, item)))
        for done, future in under_way:
            yield done, future.result()


def each_at_once(items: Iterable[Item], act: Callable[[Item], object], at_once: int) -> None:
    """Act on each item, several at the same time.

    :raises Exception: the error of the first item that failed, once all are done.
    """
    errors = [result for _, result in side_by_side(items, act, at_once) if isinstance(result, Exception)]
    if errors:
        raise errors[0]


def _result(act: Callable[[Item], Result], item: Item) -> Result | Exception:
    try:
        return act(item)
    except Exception as error:  # the caller decides
        return error
