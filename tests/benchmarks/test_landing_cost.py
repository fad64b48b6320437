"""What a round asks of the store, which a plan reckons with: four items for each batch, and a read."""

from __future__ import annotations

import pytest

from benchmarks.landing_cost import store_calls


@pytest.mark.parametrize("shards", [2, 6])
def test_a_batch_writes_four_items_and_reads_once_more(shards: int) -> None:
    calls = store_calls(shards, rounds=5)
    assert calls["batches"] == shards
    assert calls["items written"] == pytest.approx(4 * shards, abs=1.5), "now and then the job renews itself"
    assert calls["reads"] == pytest.approx(5.5 + shards, abs=1.5)
