"""Random histories of a stream: everything that arrived before the watermark is delivered, and the watermark moves."""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.sources.watermarks import watermark_of
from tests.spark.test_histories import ACTIONS, act
from tests.support.depth import examples
from tests.support.history import History


class TimedHistory(History):
    """A history that knows when each record arrived."""

    arrivals: dict[str, datetime]

    def send(self, count: int, keys: int = 5) -> None:
        self.arrivals = getattr(self, "arrivals", {})
        for _ in range(count):
            super().send(1, keys)
            self.arrivals[self.sent[-1]] = self.clock.now()

    def overtaken(self) -> list[str]:
        """Return the records that arrived before the watermark and are not delivered."""
        watermark = watermark_of(self.look.view)
        delivered = self.delivered
        arrived = getattr(self, "arrivals", {})
        if watermark is None or watermark.until is None:
            return []
        return [event for event, at in arrived.items() if at < watermark.until and event not in delivered]


@pytest.mark.integration
@settings(max_examples=examples(60))
@given(st.lists(ACTIONS, max_size=30))
def test_watermark_never_overtakes_a_record(story: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = TimedHistory(Path(folder))
        history.sync()
        for action, value in story:
            act(history, action, value)
            assert history.overtaken() == [], watermark_of(history.look.view)
        history.settle()
        watermark = watermark_of(history.look.view)
        assert watermark is not None and watermark.until is not None
        assert history.clock.now() - watermark.until < timedelta(minutes=2), watermark
