"""How many partitions a worker should hold. Pure decisions, no I/O."""

from __future__ import annotations

import math


def fair_share(unfinished: int, live_owners: int, expected_workers: int) -> int:
    """Return the most partitions one worker should hold, as the Kinesis Client Library counts: an even part, rounded
    up.

    :param unfinished: partitions that are not COMPLETED.
    :param live_owners: owners seen holding a live lease, this worker included.
    :param expected_workers: how many workers are expected; the larger of the two counts, so that the first worker
        of several does not take everything.
    """
    return math.ceil(unfinished / max(live_owners, expected_workers, 1))
