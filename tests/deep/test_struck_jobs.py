"""Every call of a job to the store, to files and to its source: see `tests/support/struck_jobs.py`.

`STRIKE_EVERY=10` takes each tenth call, for trying it out. The table of what was tried is in the log at the end.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tests.support.freezing import Strike
from tests.support.struck_jobs import CASES, Case, live

log = logging.getLogger(__name__)

EVERY = int(os.environ.get("STRIKE_EVERY", "1"))
FAILING = [strike for strike in Strike if strike is not Strike.FREEZE]


def strikes_at(how: str, point: int) -> tuple[Strike, bool]:
    """Return what happens at a call, and whether the leases are given up then."""
    if how == "fails":  # each call in one of the ways; neighbours in others
        return FAILING[point % len(FAILING)], bool(point // len(FAILING) % 2)
    return Strike.FREEZE, how == "frozen and given up"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", ["frozen and expired", "frozen and given up", "fails"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_at_no_call_anything_is_lost_doubled_or_changed(
    case: Case, how: str, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    calls = len(live(case, tmp_path / "none", None).made)
    wrong = []
    for point in range(1, calls + 1, EVERY):
        strike, gives_up = strikes_at(how, point)
        try:
            live(case, tmp_path / str(point), point, strike=strike, gives_up=gives_up)
        except AssertionError as error:
            wrong.append(str(error))
    tried = len(range(1, calls + 1, EVERY))
    record_property("points", f"{tried - len(wrong)} of {tried}")
    log.warning("%s, %s: %d of %d points hold", case, how, tried - len(wrong), tried)
    assert not wrong, "\n".join(wrong)
