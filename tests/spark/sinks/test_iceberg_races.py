"""Two drivers, in processes of their own, commit to one Iceberg table at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.support.sinks import IcebergUnderTest, Place

REPOSITORY = Path(__file__).resolve().parents[3]
ROUNDS = 6
DRIVER = """
import json, sys
from pathlib import Path
from tests.support.sinks import BatchRows, IcebergUnderTest, Place, an_attempt
folder, me, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
sink = Place(IcebergUnderTest(), folder).sink()
sink.check()
for n in range(rounds):
    names = [f"both-{n}", f"only-{me}-{n}"]
    attempts = [an_attempt(name, me) for name in names]
    sink.prepare(attempts, BatchRows({name: [me, me] for name in names}))
    print("prepared", flush=True)
    sys.stdin.readline()
    sink.commit(attempts)
    sink.discard(attempts)
    print("in", flush=True)
"""


def test_two_drivers_that_commit_the_same_batches_at_once_bring_each_once_and_lose_none(tmp_path: Path) -> None:
    place = Place(IcebergUnderTest(), tmp_path)
    drivers = [
        subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(tmp_path), str(me), str(ROUNDS)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in (1, 2)
    ]
    for _ in range(ROUNDS):
        for said in ("prepared", "in"):
            for driver in drivers:
                assert driver.stdout is not None and driver.stdout.readline().strip() == said
            if said == "prepared":
                for driver in drivers:
                    assert driver.stdin is not None
                    driver.stdin.write("go\n")
                    driver.stdin.flush()
    assert [driver.wait(60) for driver in drivers] == [0, 0]
    seen = place.visible
    assert set(seen) == {f"{what}-{n}" for n in range(ROUNDS) for what in ("both", "only-1", "only-2")}
    assert Counter(map(json.dumps, seen.values())).keys() <= {"[1, 1]", "[2, 2]"}, "each of one driver, whole"
    assert place.leftovers == [], "what lost the race is removed"
