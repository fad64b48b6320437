"""The benchmark of supervisors runs and prints its results; the times are not asserted."""

from __future__ import annotations

import json

import pytest

from benchmarks import supervisor

TINY = supervisor.Size(idle=1, busy=1, shards=(1_000,), rounds=1)


def test_last_line_is_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(supervisor, "QUICK", TINY)
    supervisor.main(["--quick", "--stores", "sqlite"])
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["sqlite"]
    assert figures["turn_of_1000_shards_to_aim"] > 0
    assert {"idle: poll", "busy: turn, all hand over", "1000 shards: run"} <= figures["median_ms"].keys()
    assert figures["calls"]["idle: poll"] <= 4  # an idle source costs a few small reads
