"""Calls that are made at the same time: those to a bucket wait nearly all the time."""

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
    """Act on each item, on some at the same time; yield each with its result, or with what it raises, in their order.

    Whoever leaves this early waits for what is under way.

    :param at_once: how many results are under way, or wait to be taken, at most.
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
    """Act on each item, on some at the same time.

    :raises Exception: what the first one raised that did, once all are done.
    """
    errors = [result for _, result in side_by_side(items, act, at_once) if isinstance(result, Exception)]
    if errors:
        raise errors[0]


def raised(result: Result | Exception) -> Result:
    """Return a result of `side_by_side`.

    :raises Exception: if it is one.
    """
    if isinstance(result, Exception):
        raise result
    return result


def _result(act: Callable[[Item], Result], item: Item) -> Result | Exception:
    try:
        return act(item)
    except Exception as error:  # the caller decides
        return error
