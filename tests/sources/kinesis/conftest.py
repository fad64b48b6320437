"""A Kinesis client whose responses are set in advance.

The stub is botocore's own: it checks requests and answers against the service's model.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from botocore.stub import Stubber

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.kinesis.client import (
    KinesisClient,
    kinesis_client,
)


@pytest.fixture
def client() -> KinesisClient:
    settings = AwsSettings(
        region="eu-west-1",
        endpoint_url="http://127.0.0.1:1",
        access_key_id="AKIA",
        secret_access_key="hush",
        max_attempts=1,
    )
    return kinesis_client(settings)


@pytest.fixture
def kinesis_answers(client: KinesisClient) -> Iterator[Stubber]:
    with Stubber(client) as stubber:  # type: ignore[arg-type]
        yield stubber
        stubber.assert_no_pending_responses()
