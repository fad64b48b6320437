"""Streams are named by name or ARN, and found by the pattern of their names and by tags."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.sources.kinesis.client import AccessDeniedError, QuotaExceededError
from airflow_provider_coordination.sources.kinesis.stream_names import (
    StreamSearch,
    StreamService,
    all_streams,
    naming,
    naming_read,
    split_consumer,
    stream_name,
    stream_of_consumer,
    with_found,
)
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.in_process import InProcessClient
from tests.support.kinesis_server.limits import Limits

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/clicks"
CONSUMER = f"{ARN}/consumer/web:1700000000"


@pytest.mark.parametrize(
    ("stream", "name"),
    [("clicks", "clicks"), (ARN, "clicks"), (ARN.replace("arn:aws", "arn:aws-cn"), "clicks"), ("a.b-c_D", "a.b-c_D")],
)
def test_name_is_the_same_however_it_is_given(stream: str, name: str) -> None:
    assert stream_name(stream) == name


def test_calls_name_a_stream_as_the_user_did() -> None:
    assert (naming("clicks"), naming_read("clicks")) == ({"StreamName": "clicks"}, {})
    assert naming(ARN) == naming_read(ARN) == {"StreamARN": ARN}
    assert [StreamService(None, (ARN, "views")).address(name) for name in ("clicks", "views", "old")] == [
        ARN,
        "views",
        "old",
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("clicks", ("clicks", None)),
        ("clicks:web", ("clicks", "web")),
        (ARN, (ARN, None)),
        (f"{ARN}:web", (ARN, "web")),
        (f"{ARN}:{CONSUMER}", (ARN, CONSUMER)),
        (f"clicks:{CONSUMER}", ("clicks", CONSUMER)),
    ],
)
def test_consumer_is_split_from_its_stream(text: str, parts: tuple[str, str | None]) -> None:
    assert split_consumer(text) == parts


def test_consumer_arn_names_its_stream() -> None:
    assert (stream_of_consumer(CONSUMER), stream_of_consumer(ARN), stream_of_consumer("web")) == (ARN, None, None)


# Found streams


class Account:
    """Streams with tags."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.engine = Engine(self.clock)
        self.client: Any = InProcessClient(self.engine)

    def create(self, *names: str, **tags: str) -> None:
        for name in names:
            self.client.create_stream(StreamName=name, ShardCount=1)
            if tags:
                self.client.add_tags_to_stream(StreamName=name, Tags=tags)

    def find(self, name_pattern: str | None = None, **tags: str) -> tuple[str, ...]:
        return StreamSearch(name_pattern, tags).find(self.client, sleep=self.clock.sleep).matching


@pytest.fixture
def account() -> Account:
    return Account()


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("clicks-*", ("clicks-de", "clicks-fr")),
        ("clicks-?r", ("clicks-fr",)),
        ("clicks-[df]*", ("clicks-de", "clicks-fr")),
        ("views", ("views",)),
        ("Clicks-*", ()),
    ],
)
def test_streams_are_found_by_their_names(account: Account, pattern: str, found: tuple[str, ...]) -> None:
    account.create("clicks-de", "clicks-fr", "views")

    assert account.find(pattern) == found


def test_streams_are_found_by_their_tags(account: Account) -> None:
    account.create("a", "b", team="web", stage="live")
    account.create("c", team="web", stage="test")
    account.create("d")

    assert account.find(team="web") == ("a", "b", "c")
    assert account.find(team="web", stage="live") == ("a", "b")
    assert account.find("[b-d]", team="web") == ("b", "c")


def test_only_matching_names_cost_a_call_for_tags(account: Account) -> None:
    account.create("clicks-de", "clicks-fr", "views", team="web")

    account.find("clicks-*", team="web")

    assert account.engine.calls["ListTagsForStream"] == 2


def test_every_page_is_listed(account: Account) -> None:
    account.create(*(f"s{number:03}" for number in range(250)))

    found = StreamSearch("s*").find(account.client)

    assert len(found.matching) == len(found.existing) == 250
    assert account.engine.calls["ListStreams"] == 3


def test_search_waits_within_the_quotas(account: Account) -> None:
    account.create(*(f"s{number}" for number in range(12)), team="web")
    account.engine.limits = Limits.real()

    assert len(account.find(team="web")) == 12


def test_search_fails_if_the_quota_stays_exceeded(account: Account) -> None:
    account.engine.faults.refuse("ListStreams", code="LimitExceededException", times=None)

    with pytest.raises(QuotaExceededError):
        account.find("*")


def test_search_without_permission_is_an_error(account: Account) -> None:
    account.engine.faults.deny("ListStreams", times=None)

    with pytest.raises(AccessDeniedError, match="access denied"):
        account.find("*")


def test_stream_deleted_during_the_search_is_left_out(account: Account) -> None:
    account.create("a", "b", team="web")
    account.engine.faults.before("ListTagsForStream", lambda: account.client.delete_stream(StreamName="a"), times=1)

    assert account.find(team="web") == ("b",)


def test_named_streams_join_found_ones_once(account: Account) -> None:
    account.create("clicks", "views")
    settings = {"streams": [ARN], "name_pattern": "*", "tags": None}

    assert all_streams(account.client, settings) == (ARN, "views")
    assert with_found(["clicks"], ["clicks", "views"]) == ("clicks", "views")
