"""Every spelling of a data source option is equivalent, and errors name the value and the remedy."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.kinesis.data_source_options import OPTIONS, ReadOptions, read_options

MORNING = datetime(2026, 1, 1, 8, tzinfo=UTC)
ROLE = "arn:aws:iam::123456789012:role/reader"
ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/clicks"


def options(**given: str) -> ReadOptions:
    return read_options({"streamName": "clicks", **given})


def test_stream_alone_is_read_whole_until_now() -> None:
    assert options().streams == ("clicks",)
    assert (options().start, options().end) == ("TRIM_HORIZON", None)
    assert options().fail_on_data_loss


def test_streams_are_separated_by_commas() -> None:
    assert options(streamName="clicks, taps").streams == ("clicks", "taps")


@pytest.mark.parametrize(("name", "spelling"), [(name, text) for name, more in OPTIONS.items() for text in more])
@pytest.mark.parametrize("prefix", ["", "kinesis."])
def test_option_spellings_are_equivalent_in_any_case(name: str, spelling: str, prefix: str) -> None:
    values = {
        "initialPosition": "2026-01-01T08:00:00Z",
        "endingPosition": "2026-01-01T09:00:00Z",
        "awsAccessKey": "AKIA",
        "awsSecretKey": "hush",
        "awsSessionToken": "tok",
        "roleArn": ROLE,
        "roleSessionName": "nightly",
        "consumerMode": "efo",
        "maxRecordsPerFetch": "7",
    }
    needed = {
        "awsAccessKey": ("awsSecretKey",),
        "awsSecretKey": ("awsAccessKey",),
        "awsSessionToken": ("awsAccessKey", "awsSecretKey"),
        "roleSessionName": ("roleArn",),
    }
    others = {other: values[other] for other in needed.get(name, ())}
    others |= {"consumerName": "c"} if name == "consumerMode" else {}

    same = options(**others, **{(prefix + spelling).upper(): values[name]})

    assert same == options(**others, **{name: values[name]}) != options()


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("trim_horizon", "TRIM_HORIZON"),
        ("EARLIEST", "TRIM_HORIZON"),
        ("2026-01-01T08:00:00Z", MORNING),
        ("2026-01-01T10:00:00+02:00", MORNING),
        ("AT_TIMESTAMP 2026-01-01T08:00:00Z", MORNING),
        ("at_timestamp:2026-01-01T08:00:00Z", MORNING),
        ('{"at_timestamp": "2026-01-01T08:00:00Z"}', MORNING),
    ],
)
def test_position_has_several_spellings(text: str, start: Any) -> None:
    assert options(initialPosition=text).start == start


def test_read_from_latest_ends_in_the_future() -> None:
    assert options(initialPosition="latest", endingPosition="2100-01-01T00:00:00Z").start == "LATEST"


def test_arn_names_stream_and_region() -> None:
    given = read_options({"streamARN": ARN})

    assert (given.streams, given.kinesis.region, given.stream_arn) == (("clicks",), "eu-west-1", ARN)


def test_endpoint_names_its_region() -> None:
    assert options(endpointUrl="https://kinesis.eu-west-1.amazonaws.com").kinesis.region == "eu-west-1"


def test_keys_and_roles_become_settings_without_visible_secrets() -> None:
    given = options(
        region="eu-west-1",
        awsAccessKey="AKIA",
        awsSecretKey="hush",
        awsSessionToken="hush too",
        roleArn=ROLE,
        roleExternalId="ours",
        roleSessionName="nightly",
    )

    kinesis = given.kinesis
    assert (kinesis.access_key_id, kinesis.secret_access_key, kinesis.session_token) == ("AKIA", "hush", "hush too")
    assert (kinesis.role_arn, kinesis.external_id, kinesis.role_session_name) == (ROLE, "ours", "nightly")
    assert "hush" not in repr(given)


def test_ranges_are_inclusive_and_may_omit_an_end() -> None:
    text = '{"shardId-0": {"start": "0495", "end": 496}, "shardId-1": {"end": "9"}}'

    first, second = options(shardRanges=text).ranges

    assert (first.shard_id, first.start, first.end) == ("shardId-0", "495", "496")
    assert (second.shard_id, second.start, second.end) == ("shardId-1", None, "9")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"streamName": " , "}, "option 'streamName' is missing: name the stream"),
        ({"streamName": "a,b,a"}, "option 'streamName' ('a,b,a') names 'a' twice"),
        ({"streamnam": "b"}, "option 'streamnam' is unknown; the nearest is 'streamName'"),
        ({"kinesis.endpoint": "x"}, "option 'kinesis.endpoint' is unknown; the nearest is 'endpointUrl'"),
        ({"streamARN": ARN}, "('" + ARN + "') cannot be combined with streamName"),
        ({"streamName": "", "streamARN": "clicks"}, "option 'streamARN' ('clicks') must be like arn:aws:kinesis"),
        ({"kinesis.streamName": "b"}, "options 'streamName' and 'kinesis.streamName' are the same option"),
        ({"endpointUrl": "localhost"}, "option 'endpointUrl' ('localhost') must begin with http://"),
        ({"initialPosition": "yesterday"}, "option 'initialPosition' ('yesterday') must be TRIM_HORIZON, EARLIEST"),
        ({"startingPosition": "2026-01-01T08:00"}, "option 'startingPosition' ('2026-01-01T08:00') must be"),
        ({"initialPosition": '{"at_timestamp": "x", "format": "y"}'}, "a format is not accepted"),
        ({"initialPosition": "LATEST"}, "('LATEST') begins after all existing records"),
        ({"initialPosition": "latest", "endingPosition": "LATEST"}, "or an endingPosition in the future"),
        ({"endingPosition": "TRIM_HORIZON"}, "option 'endingPosition' ('TRIM_HORIZON') must be LATEST or an instant"),
        (
            {"initialPosition": "2026-01-01T08:00:00Z", "endingPosition": "2026-01-01T08:00:00Z"},
            "must be before endingPosition ('2026-01-01T08:00:00Z')",
        ),
        ({"shardIds": "a", "streamName": "b,c"}, "option 'shardIds' ('a') names shards of one stream, but 2 are read"),
        ({"shardIds": "a", "shardRanges": '{"a": {"end": "1"}}'}, "cannot be combined with shardRanges"),
        ({"shardRanges": "[]"}, "option 'shardRanges' ('[]') must be a JSON object"),
        ({"shardRanges": "{"}, "option 'shardRanges' ('{') must be a JSON object"),
        ({"shardRanges": '{"a": {}}'}, "must give 'start', 'end' or both for 'a'"),
        ({"shardRanges": '{"a": {"from": "1"}}'}, "must give 'start', 'end' or both for 'a'"),
        ({"shardRanges": '{"a": {"start": "x"}}'}, "has 'x' as 'start' of 'a': give a sequence number"),
        ({"shardRanges": '{"a": {"start": 4.5}}'}, "has 4.5 as 'start' of 'a'"),
        ({"shardRanges": '{"a": {"start": "10", "end": "9"}}'}, "has the start of 'a' after its end"),
        ({"awsAccessKey": "AKIA"}, "option 'awsAccessKey' ('AKIA') needs awsSecretKey"),
        ({"awsSecretKey": "hush"}, "option 'awsSecretKey' ('***') needs awsAccessKey"),
        ({"sessionToken": "hush"}, "option 'sessionToken' ('***') needs awsAccessKey"),
        ({"roleArn": "reader"}, "option 'roleArn' ('reader') must be an ARN"),
        ({"roleExternalId": "x"}, "option 'roleExternalId' ('x') needs roleArn"),
        ({"roleSessionName": "x"}, "option 'roleSessionName' ('x') needs roleArn"),
        ({"consumerMode": "push"}, "option 'consumerMode' ('push') must be one of polling, efo"),
        ({"consumerMode": "efo"}, "option 'consumerMode' ('efo') needs consumerName"),
        ({"consumerName": "c"}, "option 'consumerName' ('c') is for enhanced fan-out: set consumerMode=efo"),
        ({"maxRecordsPerFetch": "10001"}, "('10001') must be a whole number, 1 to 10000"),
        ({"maxRecordsPerFetch": "many"}, "('many') must be a whole number"),
        ({"shardsPerTask": "0"}, "option 'shardsPerTask' ('0') must be a whole number, 1 or more"),
        ({"slotMemoryBytes": "1000"}, "('1000') must be a whole number, 33554432 or more"),
        ({"failOnDataLoss": "maybe"}, "option 'failOnDataLoss' ('maybe') must be one of true, false"),
    ],
)
def test_invalid_option_is_named_with_a_remedy(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        options(**given)

    assert message in str(error.value)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize("name", ["awsSecretKey", "awsSessionToken"])
def test_spark_hides_secret_options_by_name(name: str) -> None:
    by_default = re.compile(r"(?i)secret|password|token|access[.]?key")  # spark.redaction.regex

    assert all(by_default.search(spelling) for spelling in (name, *OPTIONS[name]))
