"""Two drivers in separate processes commit to one sink at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.sinks import SINKS, OnServer, SinkTarget
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration
REPOSITORY = Path(__file__).resolve().parents[3]
ROUNDS = 6
DRIVER = """
import sys
from pathlib import Path
from airflow_provider_coordination.coordination.errors import CoordinationError
from tests.support.sinks import SINKS, BatchRows, OnServer, SinkTarget, an_attempt
kind, url, folder, me, rounds = SINKS[sys.argv[1]], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
sink = SinkTarget(kind.make(url) if isinstance(kind, OnServer) else kind, folder).sink()
sink.check()
for n in range(rounds):
    names = [f"both-{n}", f"only-{me}-{n}"]
    attempts = [an_attempt(name, me) for name in names]
    sink.prepare(attempts, BatchRows({name: [me, me] for name in names}))
    print("prepared", flush=True)
    sys.stdin.readline()
    try:
        sink.commit(attempts)
    except CoordinationError as error:
        assert "another owner" in str(error), error  # who was first has the batch
    sink.discard(attempts)
    print("in", flush=True)
"""


@pytest.mark.parametrize("name", sorted(SINKS))
def test_two_concurrent_drivers_store_each_batch_once(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kind, url, folder = SINKS[name], "", tmp_path / "sink"
    if isinstance(kind, OnServer):
        url = request.getfixturevalue(kind.fixture)
        kind = kind.make(url)
    target = SinkTarget(kind, folder)
    drivers = [
        subprocess.Popen(
            [sys.executable, "-c", DRIVER, name, url, str(folder), str(me), str(ROUNDS)],
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
    assert [driver.wait(PATIENCE_SECONDS) for driver in drivers] == [0, 0]
    seen = target.visible
    assert set(seen) == {f"{what}-{n}" for n in range(ROUNDS) for what in ("both", "only-1", "only-2")}
    assert Counter(map(json.dumps, seen.values())).keys() <= {"[1, 1]", "[2, 2]"}, "each of one driver, whole"
    assert target.leftovers == [], "what lost the race is removed"
