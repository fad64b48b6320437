"""A job and its successor are struck at each call of a handover, and nothing is lost, doubled or out of order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.dag_versions import FIXED, OLD, PLAIN, TWO, Case, Dag
from tests.support.depth import at_depth
from tests.support.freezing import Calls, Strike
from tests.support.striking import STRIKES
from tests.support.succession import NEW, ItemSuccession, ShardSuccession, Succession
from tests.support.succession import OLD as FORMER

KINDS = {"shards": ShardSuccession, "items": ItemSuccession}
SPECS = {
    "landed files, same spec": (PLAIN, PLAIN),
    "transformed, same spec": (OLD, OLD),
    "transformed, edited spec": (OLD, FIXED),
    "other sinks": (PLAIN, TWO),
}


def lived(kind: str, dags: tuple[Dag, Dag], folder: Path, struck: str, calls: Calls, *, gives_up: bool) -> Succession:
    """Let a job be replaced, with one of the two struck."""
    case = replace(Case("handover", *dags), source=kind, lands_first=bool((calls.point or 0) % 2))
    life = KINDS[kind](case, folder, calls, gives_up=gives_up)
    life.struck = struck
    try:
        life.live()
    except AssertionError as error:
        raise AssertionError(f"{calls.strike} at call {calls.point} ({calls.struck}) of {struck}: {error}") from error
    return life


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", SPECS)
def test_handover_delivers_everything_once(kind: str, spec: str, tmp_path: Path) -> None:
    first, then = SPECS[spec]
    life = lived(kind, (first, then), tmp_path, FORMER, Calls(), gives_up=False)
    old, new = life.summaries[FORMER], life.summaries[NEW]
    assert bool(old.handed_over) == (kind == "shards" or first == then), "items end with their delivery"
    assert old.lost == new.lost == [] and old.failed == new.failed == {}
    assert old.records_landed + new.records_landed == old.records_delivered + new.records_delivered
    assert (old.records_landed > old.records_delivered) == (first == then), "only an equal spec delivers for another"


@pytest.mark.deep
@pytest.mark.share(0.3)
@pytest.mark.parametrize("struck", [FORMER, NEW])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", SPECS)
def test_struck_handover_loses_and_doubles_nothing(spec: str, kind: str, struck: str, tmp_path: Path) -> None:
    unharmed = Calls()
    lived(kind, SPECS[spec], tmp_path / "none", struck, unharmed, gives_up=False)
    assert len(unharmed.made) > 20
    step = at_depth(short=61, deep=1)
    for point in range(1 + len(spec) % step, len(unharmed.made) + 1, step):
        strike = Strike.FREEZE if point % 2 else STRIKES[point % len(STRIKES)]
        lived(kind, SPECS[spec], tmp_path / str(point), struck, Calls(point, strike), gives_up=point % 3 == 0)
