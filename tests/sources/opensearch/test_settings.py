"""Settings of indices are validated."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.opensearch.settings import OpenSearchSettings

HOST = "https://search.example.com:9200"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hosts": ()}, "'hosts' must name a node"),
        ({"hosts": ("search.example.com",)}, "must contain URLs that begin with http"),
        ({"user": "me"}, "'user' and 'password' must be given together"),
        ({"user": "me", "password": "x", "aws": AwsSettings()}, "got both"),
        ({"indices": ()}, "'indices' must name indices"),
        ({"indices": ("a,b",)}, "one name or pattern each"),
        ({"indices": ("a", "-b")}, "use 'exclude'"),
        ({"slices": 0}, "'slices' must be from 1 to 1024"),
        ({"page_documents": 10_001}, "'page_documents' must be from 1 to 10000"),
        ({"context": "none"}, "'context' must be 'point_in_time' or 'scroll'"),
        ({"interval_seconds": 0.0}, "'interval' must be positive"),
        ({"count": 2}, "'count' needs 'interval'"),
    ],
)
def test_invalid_setting_names_value_and_remedy(changes: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        OpenSearchSettings(**{"hosts": (HOST,), **changes})


def test_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="must not contain a password") as caught:
        OpenSearchSettings(hosts=("https://me:never-to-be-seen@search.example.com",))
    assert "never-to-be-seen" not in str(caught.value)


def test_settings_survive_json_and_hide_the_password() -> None:
    settings = OpenSearchSettings(hosts=(HOST,), user="me", password="never-to-be-seen", query={"match_all": {}})
    assert read_settings(OpenSearchSettings, "settings", write_settings(settings)) == settings
    assert "never-to-be-seen" not in repr(settings)
