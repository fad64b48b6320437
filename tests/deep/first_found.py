"""Strikes calls of cases until something goes wrong; prints what, or nothing.

Calls that change something come first, in a fixed random order, each case in turn.

python -m tests.deep.first_found KIND CASE [CASE ...]

KIND is the kind of the sinks, one of `SINKS` that needs no server.
"""

from __future__ import annotations

import logging
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, product, zip_longest
from pathlib import Path

from tests.support.dag_versions import CASES, Case
from tests.support.freezing import Strike
from tests.support.sinks import SINKS, OnServer, SinkUnderTest
from tests.support.struck_jobs import live

HOW = [(Strike.FREEZE, False), (Strike.FREEZE, True), (Strike.RAISED_AFTER, False), (Strike.KILLED_BEFORE, False)]

PAIRS = 300
"""How many pairs of calls are tried, one of the victim and one of the next owner."""


def first_found(kind: str, names: list[str]) -> str:
    """Return what goes wrong first; empty if nothing does."""
    places = SINKS[kind]
    assert not isinstance(places, OnServer)
    cases = [replace(case, lands_first=each) for case in CASES if str(case) in names for each in (True, False)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            trials = [trials_of(case, places, Path(folder) / str(number)) for number, case in enumerate(cases)]
            for trial in filter(None, chain.from_iterable(zip_longest(*trials))):
                trial()
        except AssertionError as error:
            return str(error)
    return ""


def trials_of(case: Case, places: SinkUnderTest, folder: Path) -> Iterator[Callable[[], object]]:
    """Yield the ways in which a case is struck.

    :param folder: where each has a folder of its own.
    """
    lives = partial(live, case, places=places)
    calls = lives(folder / "none", None)
    chosen, changing = random.Random(str(case)), set(calls.changing)
    strikes = list(product(range(1, len(calls.made) + 1), HOW))
    pairs = [(chosen.choice(calls.changing), chosen.choice(calls.changing)) for _ in range(PAIRS)]
    first = [
        *(
            partial(lives, folder / f"{point}{strike}{gives_up}", point, strike=strike, gives_up=gives_up)
            for point, (strike, gives_up) in strikes
            if point in changing
        ),
        *(
            partial(lives, folder / f"both{number}", point, gives_up=number % 2 == 0, successor=successor)
            for number, (point, successor) in enumerate(pairs)
        ),
    ]
    chosen.shuffle(first)
    yield from first
    for point, (strike, gives_up) in strikes:
        if point not in changing:
            yield partial(lives, folder / f"{point}{strike}{gives_up}", point, strike=strike, gives_up=gives_up)


if __name__ == "__main__":
    logging.disable()
    sys.stdout.write(first_found(sys.argv[1], sys.argv[2:]))
