"""What a user writes of indices, and how a cluster is reached, are checked."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.opensearch.kind import OpenSearchCluster, OpenSearchIndices

HOST = "https://search.example.com:9200"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hosts": ()}, "'hosts' must name a node"),
        ({"hosts": ("search.example.com",)}, "must contain URLs that begin with http"),
        ({"user": "me"}, "'user' and 'password' must be given together"),
        ({"user": "me", "password": "x", "aws": AwsSettings()}, "got both"),
    ],
)
def test_invalid_cluster_names_value_and_remedy(changes: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        OpenSearchCluster(**{"hosts": (HOST,), **changes})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"indices": ()}, "'indices' must not be empty"),
        ({"indices": ("a,b",)}, "one name or pattern each"),
        ({"indices": ("a", "-b")}, "use 'exclude'"),
        ({"slices": 0}, "'slices' must be from 1 to 1024"),
        ({"page_documents": 10_001}, "'page_documents' must be from 1 to 10000"),
        ({"query": "match"}, "'query' must be a JSON object; got 'match'"),
        ({"context": "none"}, "'context' must be one of point_in_time, scroll; got 'none'"),
        ({"interval": 0.0}, "'interval' must be positive"),
        ({"count": 2}, "'count' needs 'interval'"),
    ],
)
def test_invalid_value_names_field_and_remedy(changes: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"OpenSearchIndices: field .*{says}"):
        OpenSearchIndices(**{"indices": "logs-*", **changes}).check()


def test_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="must not contain a password") as caught:
        OpenSearchCluster(hosts=("https://me:never-to-be-seen@search.example.com",))
    assert "never-to-be-seen" not in str(caught.value)


def test_indices_survive_json_and_hide_the_password() -> None:
    cluster = OpenSearchCluster(hosts=(HOST,), user="me", password="never-to-be-seen")
    indices = OpenSearchIndices(indices=("logs-*",), query={"match_all": {}}, cluster=cluster)
    assert OpenSearchIndices.from_mapping(indices.to_mapping()) == indices
    assert "never-to-be-seen" not in repr(indices) + repr(cluster)
