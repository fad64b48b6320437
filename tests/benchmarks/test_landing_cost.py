"""The store calls of a round, an assumption of plans: five items for each batch, and a constant number of reads."""

from __future__ import annotations

import pytest

from benchmarks.landing_cost import store_calls


@pytest.mark.parametrize("shards", [2, 6])
def test_batch_writes_five_items_and_adds_no_reads(shards: int) -> None:
    calls = store_calls(shards, rounds=5)
    assert calls["batches"] == shards
    assert calls["items written"] == pytest.approx(5 * shards, abs=1.5), "from time to time the job renews its own item"
    assert calls["reads"] == pytest.approx(5.5, abs=1.5)
