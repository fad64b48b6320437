"""Goes through the calls of cases until one is found at which something goes wrong; says which, or nothing.

Those calls come first that change something.

python -m tests.deep.first_found KIND CASE [CASE ...]

KIND is the kind of the sinks, one of `SINKS` that needs no server.
"""

from __future__ import annotations

import logging
import random
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.support.dag_versions import CASES
from tests.support.freezing import Strike
from tests.support.sinks import SINKS, OnServer
from tests.support.struck_jobs import live

HOW = [(Strike.FREEZE, False), (Strike.FREEZE, True), (Strike.RAISED_AFTER, False), (Strike.KILLED_BEFORE, False)]

PAIRS = 300
"""How many pairs of calls are tried last, one of the victim and one of the next owner."""


def first_found(kind: str, names: list[str]) -> str:
    """Return what goes wrong first; empty if nothing does."""
    places = SINKS[kind]
    assert not isinstance(places, OnServer)
    lives = partial(live, places=places)
    for case in (replace(case, lands_first=each) for case in CASES if str(case) in names for each in (True, False)):
        with tempfile.TemporaryDirectory() as folder:
            try:
                calls = lives(case, Path(folder) / "none", None)
                for point in range(1, len(calls.made) + 1):
                    for strike, gives_up in HOW:
                        lives(
                            case, Path(folder) / f"{point}{strike}{gives_up}", point, strike=strike, gives_up=gives_up
                        )
                chosen = random.Random(str(case))
                for number in range(PAIRS):
                    point, successor = chosen.choice(calls.changing), chosen.choice(calls.changing)
                    lives(case, Path(folder) / f"both{number}", point, gives_up=number % 2 == 0, successor=successor)
            except AssertionError as error:
                return str(error)
    return ""


if __name__ == "__main__":
    logging.disable()
    sys.stdout.write(first_found(sys.argv[1], sys.argv[2:]))
