"""What the driver makes of the answers of executors; see tests/integration/test_slots.py for real ones."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.delivery import SinkAwayError
from airflow_provider_coordination.spark.shared_locations import LOCAL_FOLDERS, Answer, Question, SharedPlaces

NOWHERE = AwsSettings(
    region="us-east-1",
    endpoint_url="http://127.0.0.1:9",
    access_key_id="test",
    secret_access_key="test",
    max_attempts=1,
)


def ask(places: SharedPlaces, executor: str) -> None:
    """Let an executor answer, which is known by its local folders."""
    with places.asking() as (question, answers), patch.dict(os.environ, {LOCAL_FOLDERS: executor}):
        answers.append(answered(question))


def ask_and_sweep(places: SharedPlaces) -> None:
    """Let an executor answer whose files are gone before the driver looks."""
    with places.asking() as (question, answers):
        answer = answered(question)
        Path(answer.files[0]).unlink()
        answers.append(answer)


def pass_on(places: SharedPlaces, answer: Answer) -> None:
    """Let an executor give this answer."""
    with places.asking() as (_, answers):
        answers.append(answer)


def answered(question: Question) -> Answer:
    """Return the answer of an executor that has given none yet."""
    answer = question.answer(0)
    assert answer is not None
    return answer


def test_every_place_is_tried_and_nothing_is_left_there(tmp_path: Path) -> None:
    roots = [tmp_path / "landing", tmp_path / "lake"]
    places = SharedPlaces([str(root) for root in roots])
    with places.asking() as (question, answers):
        answers.append(answered(question))
        assert [len(list(root.rglob("*.*"))) for root in roots] == [1, 1]
    assert not [path for root in roots for path in root.rglob("*")]


def test_who_has_answered_is_not_asked_again_and_others_do_not_land(tmp_path: Path) -> None:
    places = SharedPlaces([str(tmp_path)])
    assert places.known is None
    ask(places, "first")
    assert places.known is not None
    with patch.dict(os.environ, {LOCAL_FOLDERS: "first"}):
        assert places.known.answer(0) is None
    with patch.dict(os.environ, {LOCAL_FOLDERS: "second"}):
        assert not answered(places.known).may_land


def test_what_the_driver_does_not_find_is_named(tmp_path: Path) -> None:
    places = SharedPlaces([str(tmp_path)])
    with pytest.raises(ConfigurationError, match=r"is not shared by all workers: what .* wrote to .* is not there for"):
        ask_and_sweep(places)
    assert places.known is None


def test_a_place_that_does_not_answer_an_executor_at_present_is_no_wrong_setting(tmp_path: Path) -> None:
    away = Question(frozenset(), ("s3://lake/landing",), "probe", Access((("s3://lake/landing", NOWHERE),)))
    answer = answered(away)
    assert answer.is_passing
    places = SharedPlaces([str(tmp_path)])
    with pytest.raises(SinkAwayError, match=r"is out of reach for an executor at present: .* cannot use 's3://lake"):
        pass_on(places, answer)
    assert places.known is None
