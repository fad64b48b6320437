"""Settings are written as JSON and read back."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pendulum
import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.field_hints import Limits, Texts
from airflow_provider_coordination.settings import CONNECTED, Described, FieldError, read_settings, write_settings
from tests.conftest import REPOSITORY


@dataclass(frozen=True, kw_only=True)
class Login:
    user: str
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Settings:
    at: datetime
    wait: timedelta = timedelta(minutes=1)
    share: float = 0.5
    is_on: bool = False
    count: int | None = None
    login: Login | None = None
    logins: tuple[Login, ...] = ()
    items: tuple[dict[str, Any], ...] = ()


AT = "2026-01-31T00:00:00.000000Z"


def test_settings_are_read_as_written() -> None:
    settings = Settings(
        at=datetime(2026, 1, 31, tzinfo=UTC),
        wait=timedelta(seconds=0.5),
        login=Login(user="u", password="p"),
        logins=(Login(user="v"),),
        items=({"name": "a"},),
    )
    stored = json.loads(json.dumps(write_settings(settings)))
    assert read_settings(Settings, "settings", stored) == settings


def test_instant_is_written_in_the_stored_form() -> None:
    assert write_settings(Settings(at=datetime(2026, 1, 31, tzinfo=UTC)))["at"] == AT


def test_integers_are_accepted_for_fractions() -> None:
    assert read_settings(Settings, "settings", {"at": AT, "share": 1}).share == 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"at": "2026-01-31T00:00:00"}, r"settings: field 'at' must have a time zone; got '2026-01-31T00:00:00'"),
        ({"at": "soon"}, r"settings: field 'at' must be an instant with a time zone, such as .*; got 'soon'"),
        ({"at": 5}, r"settings: field 'at' must be an instant with a time zone, such as .*; got 5"),
        (
            {"wait": 5},
            r"settings: field 'wait' must be an ISO 8601 duration such as PT1H; got 5",
        ),
        ({"count": "5"}, r"settings: field 'count' must be a whole number or null; got '5'"),
        ({"is_on": 1}, r"settings: field 'is_on' must be true or false; got 1"),
        ({"login": {}}, r"settings: field 'login': field 'user' is missing"),
        ({"login": {"usr": ""}}, r"settings: field 'login': unknown field 'usr'; the known fields are user, password"),
        ({"login": []}, r"settings: field 'login': expected a JSON object; got list"),
        ({"logins": [{"user": 5}]}, r"settings: field 'logins': field 'user' must be text; got 5"),
        ({"items": [5]}, r"settings: field 'items' must be a JSON object; got 5"),
        ({"more": 1}, r"settings: unknown field 'more'; the known fields are at, wait"),
    ],
)
def test_invalid_setting_is_named_with_its_value(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_settings(Settings, "settings", {"at": AT, **given})


def test_secret_of_the_wrong_type_is_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="must be text or null; got list, which may be a secret") as error:
        read_settings(Settings, "settings", {"at": AT, "login": {"user": "u", "password": ["hush"]}})
    assert "hush" not in str(error.value)


def test_lenient_reading_accepts_text_and_numeric_durations() -> None:
    given = {"at": AT, "wait": 90, "share": "0.25", "is_on": "True", "count": "7"}
    read = read_settings(Settings, "settings", given, lenient=True)
    assert read == Settings(
        at=datetime(2026, 1, 31, tzinfo=UTC), wait=timedelta(seconds=90), share=0.25, is_on=True, count=7
    )


def test_lenient_reading_refuses_invalid_values() -> None:
    with pytest.raises(
        ConfigurationError,
        match="field 'wait' must be an ISO 8601 duration such as PT1H, or a number of seconds; got 'long'",
    ):
        read_settings(Settings, "settings", {"at": AT, "wait": "long"}, lenient=True)


@dataclass
class Example(Described):
    count: Annotated[int | None, Limits(minimum=1, maximum=5)] = None
    names: Texts = ()
    wait: Annotated[timedelta, Limits(above=timedelta(0))] = timedelta(seconds=1)
    is_on: bool = False
    at: datetime | None = None
    token: Annotated[str, Limits(one_of=("a", "b"))] = field(default="a", repr=False)
    login: str = field(default="", repr=False, metadata=CONNECTED)


def test_described_values_become_the_types_of_their_fields() -> None:
    written = Example(count="3", names="a", wait="PT1M", is_on="yes", at="2026-01-31T01:00+01:00")  # type: ignore[arg-type]
    at = datetime(2026, 1, 31, tzinfo=UTC)
    expected = Example(count=3, names=("a",), wait=timedelta(minutes=1), is_on=True, at=at)
    assert written.resolved() == expected
    assert Example(count="None", names=None, wait="").resolved() == Example()  # type: ignore[arg-type]
    assert list(written.template_fields) == ["count", "names", "wait", "is_on", "at", "token"]


def test_instant_of_airflow_becomes_a_plain_one_in_utc() -> None:
    at = pendulum.datetime(2026, 1, 31, 1, 2, 3, 456789, tz="Europe/Warsaw")
    found = Example(at=at).resolved().at
    assert type(found) is datetime
    assert (found, found.tzinfo) == (datetime(2026, 1, 31, 0, 2, 3, 456789, UTC), UTC)


def test_field_error_keeps_its_field_when_pickled() -> None:
    with pytest.raises(FieldError, match="Example: field 'count' must be from 1 to 5; got 6") as caught:
        Example(count=6).check()
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error.below("spec", "reads.x")) == "spec: field 'reads.x.count' must be from 1 to 5; got 6"


def test_invalid_secret_is_not_shown() -> None:
    with pytest.raises(FieldError, match="'token' must be one of a, b; got str, which may be a secret") as caught:
        Example(token="hush").check()
    assert "hush" not in str(caught.value)


READ_IN_THREADS = """
import sys
import threading
from datetime import UTC, datetime
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.stores import StoreSettings
from tests.support.job_settings import ingest, parquet

store, until = StoreSettings.from_url("sqlite:///x.db"), datetime(2030, 1, 1, tzinfo=UTC)
given = ingest(
    source="clicks", owner="job", streams=("clicks",), writes=(parquet("/d"),), landing_path="/l", store=store,
    expires_at=until,
)
values, found = write_settings(given), []
together = threading.Barrier(16)
sys.setswitchinterval(1e-6)

def read():
    together.wait()
    found.append(read_settings(IngestSettings, "settings", values))

threads = [threading.Thread(target=read) for _ in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert found == [given] * 16
"""


def test_threads_read_a_new_class_at_the_same_time() -> None:
    for _ in range(3):  # without a lock, three of four processes crash
        subprocess.run([sys.executable, "-c", READ_IN_THREADS], check=True, cwd=REPOSITORY)
