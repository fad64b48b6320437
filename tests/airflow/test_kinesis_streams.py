"""What `KinesisStreams` says is checked when a DAG is parsed."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import check_parsed
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/clicks"
OTHER_ACCOUNT = ARN.replace("123456789012", "210987654321")
CONSUMER = f"{ARN}/consumer/web:1700000000"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "field 'streams' is missing; name a stream, or give name_pattern or tags"),
        ({"streams": []}, "field 'streams' is missing"),
        ({"streams": "arn:aws:s3:::bucket"}, "'streams' has 'arn:aws:s3:::bucket', which is not the ARN of a stream"),
        ({"streams": CONSUMER}, "which is not the ARN of a stream; give one like arn:aws:kinesis:"),
        ({"streams": "clicks:web"}, "'streams' has 'clicks:web'; give a name of 1 to 128 letters"),
        ({"streams": ["clicks", "clicks"], "source": "s"}, "'streams' names stream 'clicks' twice"),
        ({"streams": ["clicks", ARN], "source": "s"}, f"names stream 'clicks' twice, as 'clicks' and '{ARN}'"),
        ({"streams": [ARN, OTHER_ACCOUNT], "source": "s"}, "give each of two streams of one name its own source"),
        (
            {"streams": [ARN, "arn:aws:kinesis:us-east-1:123456789012:stream/views"], "source": "s"},
            "'streams' has ARNs of the regions eu-west-1, us-east-1; give each region its own source",
        ),
        ({"streams": ARN, "region_name": "us-east-1"}, "'region_name' is 'us-east-1', but field 'streams' has an ARN"),
        ({"name_pattern": "clicks/*", "source": "s"}, "'name_pattern' must be a pattern of names such as 'clicks-"),
        ({"tags": {"team": 1}, "source": "s"}, "'tags' must be a JSON object whose values are text"),
        (
            {"name_pattern": "*", "source": "s", "bounds": {"start": "TRIM_HORIZON", "end": "2026-01-01T00:00:00Z"}},
            "'name_pattern' is .* but a part of streams can be read only if 'streams' names them",
        ),
        ({"streams": "clicks", "consumer_name": "a b"}, "'consumer_name' must be 1 to 128 letters, digits"),
        ({"streams": "clicks", "consumer_name": ARN}, "'consumer_name' must be a name, or an ARN like"),
        ({"streams": "views", "consumer_name": CONSUMER}, "must be of the only stream; name 'clicks' alone"),
        ({"streams": OTHER_ACCOUNT, "consumer_name": CONSUMER}, "'consumer_name' must be of the only stream"),
        ({"name_pattern": "c*", "source": "s", "consumer_name": CONSUMER}, "must be of the only stream"),
        ({"streams": "clicks", "reads_per_second": 6}, "'reads_per_second' must be from 0.1 to 5.0; got 6"),
        ({"streams": "clicks", "reads_per_second": 0}, "'reads_per_second' must be from 0.1 to 5.0; got 0"),
        ({"streams": "clicks", "records_per_read": 10_001}, "'records_per_read' must be from 1 to 10000; got 10001"),
        ({"streams": "clicks", "on_data_loss": "reset"}, "'on_data_loss' must be one of fail, earliest, latest"),
    ],
    ids=str,
)
def test_wrong_setting_is_refused_with_its_remedy(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_parsed(KinesisStreams(**given))


@pytest.mark.parametrize(
    "given",
    [
        {"streams": ARN},
        {"streams": [ARN, "views"], "source": "web"},
        {"streams": "clicks", "consumer_name": CONSUMER},
        {"streams": ARN, "consumer_name": CONSUMER, "region_name": "eu-west-1"},
        {"name_pattern": "clicks-[a-z]*", "tags": {"team": "web"}, "source": "web"},
        {"streams": "views", "name_pattern": "clicks-*", "source": "web"},
        {"streams": "{{ params.stream }}", "name_pattern": "{{ params.pattern }}"},
        {"streams": "clicks", "reads_per_second": "0.5", "records_per_read": "100", "on_data_loss": "latest"},
    ],
    ids=str,
)
def test_right_settings_are_accepted(given: dict[str, Any]) -> None:
    check_parsed(KinesisStreams(**given))


def test_arn_names_the_source_and_the_region() -> None:
    asked = []

    class Connections:
        def aws(self, conn_id: str | None, region_name: str | None, service: str) -> AwsSettings:
            asked.append(region_name)
            return AwsSettings(region=region_name)

    reads = KinesisStreams(ARN)
    connected = reads.connect(Connections()).reads  # type: ignore[arg-type]
    by_name = KinesisStreams("clicks", region_name="eu-west-1").connect(Connections()).reads  # type: ignore[arg-type]

    assert (reads.default_source, reads.parts, asked) == ("clicks", ["clicks"], ["eu-west-1", "eu-west-1"])
    kind = connected.source_kind()
    assert kind.location(connected.settings) == kind.location(by_name.settings), "it is the same location"


def test_found_streams_need_a_source_name() -> None:
    with pytest.raises(ConfigurationError, match="streams that are searched for need a common source name"):
        _ = KinesisStreams(name_pattern="clicks-*").default_source
    assert KinesisStreams("clicks").default_source == "clicks"


def test_search_is_part_of_the_location() -> None:
    reads = KinesisStreams(name_pattern="clicks-*", tags={"team": "web"}, source="web")

    assert reads.reads_from == {"streams": [], "name_pattern": "clicks-*", "tags": {"team": "web"}}
