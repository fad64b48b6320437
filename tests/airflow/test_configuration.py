"""The section `[coordination]` of Airflow's configuration is read, validated and applied."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.hooks.configuration import Configuration
from airflow_provider_coordination.hooks.coordination import CoordinationHook


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set options, as an administrator does in the environment."""

    def define(**options: str) -> None:
        for name, value in options.items():
            monkeypatch.setenv(f"AIRFLOW__COORDINATION__{name.upper()}", value)

    return define


def test_every_option_has_a_default() -> None:
    assert Configuration.read() == Configuration()


def test_empty_option_counts_as_not_given(configure: Any) -> None:
    configure(ownership_timeout="", http_api=" ")
    assert Configuration.read() == Configuration()


def test_every_option_is_read(configure: Any) -> None:
    configure(
        ownership_timeout="120", safety_margin="2.5", max_attempts="5", max_closed_count="0", watch_interval="30",
        http_api="False", ui="False", viewers_may_read="True",
    )  # fmt: skip
    assert Configuration.read() == Configuration(
        ownership_timeout=timedelta(seconds=120),
        safety_margin=timedelta(seconds=2.5),
        max_attempts=5,
        max_closed_count=0,
        watch_interval=30.0,
        http_api=False,
        ui=False,
        viewers_may_read=True,
    )


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("ownership_timeout", "soon", "a number of seconds, such as 60"),
        ("safety_margin", "-1", "a number of seconds, such as 60"),
        ("ownership_timeout", "nan", "a number of seconds, such as 60"),
        ("max_attempts", "2.5", "a whole number"),
        ("watch_interval", "0", "a number above 0"),
        ("http_api", "perhaps", "True or False"),
    ],
)
def test_unreadable_option_is_named_with_its_value(configure: Any, option: str, value: str, wanted: str) -> None:
    configure(**{option: value})
    with pytest.raises(ConfigurationError) as error:
        Configuration.read()
    assert str(error.value) == (
        f"configuration [coordination]: field {option!r} must be {wanted}; got '{value}'; correct it in "
        f"airflow.cfg or in AIRFLOW__COORDINATION__{option.upper()}"
    )


def test_connection_overrides_the_configured_defaults(configure: Any, connect: Any, store_url: str) -> None:
    configure(ownership_timeout="120", safety_margin="3", max_attempts="5", max_closed_count="1")
    connect("plain", "coordination", extra={"url": store_url})
    connect("own", "coordination", extra={"url": store_url, "ownership_timeout": 90, "max_closed_count": 0})
    plain, own = (CoordinationHook(name).settings for name in ("plain", "own"))
    assert (plain.ownership_timeout, plain.safety_margin) == (timedelta(seconds=120), timedelta(seconds=3))
    assert plain.retry_policy == RetryPolicy(max_attempts=5, max_closed_count=1)
    assert (own.ownership_timeout, own.safety_margin) == (timedelta(seconds=90), timedelta(seconds=3))
    assert own.retry_policy == RetryPolicy(max_attempts=5, max_closed_count=0)


def test_unusable_retry_policy_is_reported_with_the_connection(configure: Any, connect: Any, store_url: str) -> None:
    configure(max_attempts="0")
    connect("c", "coordination", extra={"url": store_url})
    with pytest.raises(
        ConfigurationError, match="connection 'c': retry policy: max_attempts must be at least 1; got 0"
    ):
        _ = CoordinationHook("c").settings


def test_coordinator_of_the_hook_parks_by_the_connection_policy(connect: Any, store_url: str) -> None:
    connect("c", "coordination", extra={"url": store_url, "max_attempts": 1, "max_closed_count": 0})
    coordinator = CoordinationHook("c").coordinator("clicks", "me")
    coordinator.create_partitions({"p": {}})
    coordinator.leases.acquire(1)
    coordinator.leases.fail("p", "it broke")
    [partition] = coordinator.view.partitions(PartitionStatus.CLOSED)
    coordinator.store.close()
    assert partition.is_parked


def test_triggerer_polls_at_the_configured_interval(configure: Any, coordination: SourceCoordinator) -> None:
    from airflow_provider_coordination.triggers.watchers import watchers

    async def pace() -> float:
        return watchers().pace.poll

    configure(watch_interval="30")
    assert asyncio.run(pace()) == 30.0


def test_http_api_can_be_disabled(configure: Any) -> None:
    from airflow_provider_coordination.ui.plugin import CoordinationPlugin

    configure(http_api="False")
    assert CoordinationPlugin().fastapi_apps == []
    assert CoordinationPlugin().react_apps == []


def test_pages_can_be_disabled_and_follow_the_base_path(configure: Any, monkeypatch: Any) -> None:
    from airflow_provider_coordination.ui.plugin import CoordinationPlugin

    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://example.com/airflow/")
    pages = CoordinationPlugin().react_apps
    [bundle] = {page["bundle_url"] for page in pages}
    assert re.fullmatch("/airflow/coordination/static/[0-9a-f]{16}/coordination.js", bundle)
    assert [page["destination"] for page in pages] == ["nav", "dag_run", "task_instance"]
    configure(ui="False")
    assert CoordinationPlugin().react_apps == []
