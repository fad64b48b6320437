from __future__ import annotations

import pytest

from tests.support.dynamodb_streams import DynamoDbStreams

TABLE = "orders"


@pytest.fixture
def service() -> DynamoDbStreams:
    """A table with a stream of two shards."""
    service = DynamoDbStreams()
    service.create_table(TABLE)
    service.clock.advance(5)
    return service
