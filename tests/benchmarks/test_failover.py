"""How long shards stay unread is measured on a small scale; results that do not depend on time are asserted."""

from __future__ import annotations

import json

import pytest

from benchmarks import failover
from benchmarks.failover import Size, pauses
from tests.support.depth import at_depth


def test_pause_spans_the_change_of_owner() -> None:
    landed = [(1.0, "a", "x"), (2.0, "b", "x"), (3.0, "b", "y"), (4.0, "b", "x"), (9.0, "c", "x"), (9.5, "c", "x")]
    assert pauses(landed, 1.5) == [5.0]
    assert sorted(pauses(landed, 0.0)) == [1.0, 5.0]


@pytest.mark.only_deep
@pytest.mark.integration
def test_last_line_is_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = Size(workers=2, shards=4, kills=1, lease_seconds=4.0, margin_seconds=0.5, read_seconds=0.1)
    size = at_depth(short=tiny, deep=Size())
    monkeypatch.setattr(failover, "QUICK", size)

    failover.main(["--quick", "--stores", "sqlite"])

    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["sqlite"]
    assert figures["noticed"]["first"]["count"] == figures["unnoticed"]["last"]["count"] == size.kills
    assert figures["handed_over"]["count"] >= 2, "new workers are handed shards"  # the number read in between varies
