"""The load of waiting triggers is measured on a small scale; results that do not depend on time are asserted."""

from __future__ import annotations

import json

import pytest

from benchmarks import trigger_load
from benchmarks.trigger_load import KINDS, Size, triggers_of
from tests.support.depth import at_depth

SIZE = at_depth(
    short=Size(sources=2, triggers=12, rest_seconds=1.0, due=4, due_seconds=0.5),
    deep=Size(),
)


def test_half_of_the_triggers_wait_for_sets() -> None:
    kinds = [type(trigger).__name__ for trigger in triggers_of(0, 12, ["a", "b"])]

    assert set(kinds) == set(kinds[:KINDS])
    assert kinds.count("AcknowledgmentTrigger") == 6


@pytest.mark.only_deep
@pytest.mark.integration
def test_last_line_is_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(trigger_load, "QUICK", SIZE)
    monkeypatch.setattr(trigger_load, "SETTLED_SECONDS", 0.5)

    trigger_load.main(["--quick", "--stores", "sqlite"])

    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["sqlite"]
    assert figures["events"] == SIZE.due
    assert set(figures["queries_per_second"]) == {str(KINDS), str(SIZE.triggers)}
    assert set(figures["longest_block_ms"]) == {"rest", "due"}
