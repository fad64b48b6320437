"""What is seen of a sink becomes figures."""

from __future__ import annotations

from benchmarks.freshness import Commit, figures, phases


def test_figures_are_of_what_arrived_while_it_was_measured() -> None:
    commits = [
        Commit(at=99.0, files=7, arrivals=[50.0]),
        Commit(at=101.0, files=1, arrivals=[98.0, 100.0, 100.0]),
        Commit(at=131.0, files=2, arrivals=[129.0, 129.0, 131.0]),
    ]
    found = figures(commits, since=100.0, seconds=30.0)
    assert (found["records"], found["p50"], found["greatest"]) == (4, 1.5, 2.0)
    assert (found["commits a minute"], found["files a minute"]) == (2.0, 2.0)


def test_phases_are_the_medians_of_the_logged_rounds() -> None:
    log = "\n".join(f"INFO x: round {n}: leases=4 seconds=[acquire=0.{n} land=1.0] failed=0" for n in (1, 2, 6))
    assert phases(log) == {"acquire": 0.2, "land": 1.0}
    assert phases("round 1 failed") == {}
