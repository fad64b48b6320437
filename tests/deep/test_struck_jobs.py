"""Every call of a job that changes something, and a share of the others: see `tests/support/struck_jobs.py`.

The seed of the run chooses the others, and whether the lease of a frozen job expires or is given up. `STRIKE_SHARE=1`
takes all of them, for hours. The log says for each case how many points hold.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.dag_versions import CASES, Case
from tests.support.freezing import Strike
from tests.support.seed import seeded, share_of
from tests.support.struck_jobs import live

log = logging.getLogger(__name__)

READING_SHARE = float(os.environ.get("STRIKE_SHARE", "0.05"))
"""The share of the calls that change nothing, for each case and way."""
PAIRS = 30
"""How many pairs of calls of each case are tried: one of the victim, one of the next owner."""
FAILING = [strike for strike in Strike if strike is not Strike.FREEZE]


def strikes_at(how: str, point: int, chosen: random.Random) -> tuple[Strike, bool]:
    """Return what happens at a call, and whether the leases are given up then; they expire otherwise."""
    if how == "fails":  # each call in one of the ways; neighbours in others
        return FAILING[point % len(FAILING)], bool(point // len(FAILING) % 2)
    return Strike.FREEZE, chosen.random() < 0.5


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", ["frozen", "fails"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_job_struck_at_any_call_loses_and_doubles_nothing(
    case: Case, how: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    chosen = seeded(case, how)
    calls = live(case, tmp_path / "none", None)
    others = sorted(set(range(1, len(calls.made) + 1)).difference(calls.changing))
    points = calls.changing + share_of(others, READING_SHARE, case, how)

    def try_at(number: int) -> None:
        strike, gives_up = strikes_at(how, points[number], chosen)
        lived = replace(case, lands_first=chosen.random() < 0.5)
        live(lived, tmp_path / str(number), points[number], strike=strike, gives_up=gives_up)

    hold(f"{case}, {how}", len(points), try_at, record_property)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_previous_owner_struck_at_any_call_harms_no_successor(
    case: Case, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    chosen = seeded(case)
    case = replace(case, lands_first=chosen.random() < 0.5)
    changing = live(case, tmp_path / "none", None).changing

    def try_at(number: int) -> None:
        point, successor = chosen.choice(changing), chosen.choice(changing)
        live(case, tmp_path / str(number), point, gives_up=chosen.random() < 0.5, successor=successor)

    hold(f"{case}, both frozen", PAIRS, try_at, record_property)


def hold(what: str, count: int, try_at: Callable[[int], None], record_property: Callable[[str, object], None]) -> None:
    """Try all points; fail with all that do not hold."""
    wrong = []
    for number in range(count):
        try:
            try_at(number)
        except AssertionError as error:
            wrong.append(str(error))
    record_property("points", f"{count - len(wrong)} of {count}")
    log.warning("%s: %d of %d points hold", what, count - len(wrong), count)
    assert not wrong, "\n".join(wrong)
