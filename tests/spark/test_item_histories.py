"""Random histories of a source of items: each record is delivered once for each read, and no set ends before it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.sources.items import ItemGoneError, ItemUnreadableError, SourceUnavailableError
from tests.coordination.unreliable_store import NOT_ANSWERED, NOT_MADE
from tests.support.depth import examples
from tests.support.fleet import PHASES
from tests.support.item_history import ItemHistory
from tests.support.items import FakeItem

NUMBERS = st.integers(0, 7)
POSITIONS = st.sampled_from([False, True, frozenset([0])])
TROUBLE = {
    "damaged": ItemUnreadableError("it is damaged"),
    "gone": ItemGoneError("it is gone"),
    "away": SourceUnavailableError("it is away"),
    "raises": ValueError("of the reader"),
}


@st.composite
def partitions(draw: st.DrawFn) -> dict[str, Any]:
    """What a partition holds: how many pages each item has, whether it can be cut, and what is wrong with it."""
    items = draw(
        st.lists(st.tuples(st.integers(0, 3), POSITIONS, st.sampled_from(["", "", "", *TROUBLE]), NUMBERS), max_size=5)
    )
    reread = draw(st.sampled_from([None, 20.0]))
    return {"items": items, "reread": reread, "reads_left": draw(st.integers(0, 2)), "wait": draw(st.booleans())}


CREATE = st.tuples(st.just("create"), partitions())
ACTIONS = st.one_of(
    CREATE,
    st.tuples(st.just("start"), NUMBERS),
    st.tuples(st.just("stop"), NUMBERS),
    st.tuples(st.just("lose"), NUMBERS),
    st.tuples(st.just("die"), st.tuples(NUMBERS, st.sampled_from(PHASES), st.integers(1, 3))),
    st.tuples(st.just("fault"), st.tuples(NUMBERS, st.sampled_from([NOT_ANSWERED, NOT_MADE]), st.integers(0, 8))),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 70, 400])),
    st.tuples(st.just("trouble"), st.tuples(NUMBERS, st.sampled_from(list(TROUBLE)), st.integers(0, 3))),
    st.tuples(st.just("heal"), NUMBERS),
    st.tuples(st.just("reset"), NUMBERS),
    st.tuples(st.just("confirm"), st.tuples(NUMBERS, st.sampled_from([True, True, False]))),
)


def stories(most: int) -> st.SearchStrategy[list[tuple[str, Any]]]:
    beginnings = st.lists(CREATE, min_size=1, max_size=3)
    then = st.lists(ACTIONS, min_size=most // 2, max_size=most)
    return st.builds(lambda first, then: [*first, *then], beginnings, then)


def create(history: ItemHistory, held: dict[str, Any]) -> None:
    made = {}
    for number, (pages, positions, trouble, at) in enumerate(held["items"]):
        name = f"i{number}"
        key = f"p{len(list(history.look.view.partitions()))}"
        content = [[f"{key}.{name}/{page}/{n}" for n in range(1 + page % 2)] for page in range(pages)]
        made[name] = FakeItem(content, positions=positions, error=TROUBLE.get(trouble), fails_at=at % (pages + 1))
        if trouble == "gone":
            history.gone.add(f"{key}.{name}")
    changes = {} if held["reread"] is None else {"reread_seconds": held["reread"], "reads_left": held["reads_left"]}
    key = history.create(made, **changes)
    if held["wait"] and made:
        history.source.held_back.add(f"{key}.i0")


def act(history: ItemHistory, action: str, value: Any) -> None:
    workers = list(history.workers.values())
    match action:
        case "create":
            create(history, value)
        case "wait":
            history.clock.advance(value)
        case "start":
            if len(workers) < 3:
                history.start()
        case "heal":
            history.heal()
        case "reset":
            history.reset(value)
        case "confirm":
            history.confirm(value[0], positive=value[1])
        case "trouble":
            if names := list(history.source.items):
                name = names[value[0] % len(names)]
                held = history.source.items[name]
                held.error, held.fails_at = TROUBLE[value[1]], value[2] % (len(held.pages) + 1)
                if value[1] == "gone":
                    history.gone.add(name)
        case _ if not workers:
            return
        case "die":
            number, phase, count = value
            doomed = workers[number % len(workers)]
            doomed.dies_at = (phase, count)
            history.round(doomed)
        case "fault":
            number, fault, after = value
            history.round(workers[number % len(workers)], fault, after)
        case "stop":
            history.stop(workers[value % len(workers)])
        case "lose":
            lost = workers[value % len(workers)]
            history.lose(lost)
            if value % 2:
                history.notice(lost)


def live(story: list[tuple[str, Any]], *, confirmed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = ItemHistory(Path(folder), confirmed=confirmed)
        history.start()
        for number, (action, value) in enumerate(story):
            act(history, action, value)
            for worker in list(history.workers.values())[number % 2 :: 2]:
                history.round(worker)
            history.check()
        history.settle()
        history.check_all()


@pytest.mark.integration
@settings(max_examples=examples(40))
@given(stories(25), st.booleans())
def test_records_are_delivered_once_per_reading(story: list[tuple[str, Any]], confirmed: bool) -> None:
    live(story, confirmed=confirmed)


@settings(max_examples=examples(4))
@given(stories(6), st.booleans())
def test_records_are_delivered_once_per_reading_in_short_lives(story: list[tuple[str, Any]], confirmed: bool) -> None:
    live(story, confirmed=confirmed)
