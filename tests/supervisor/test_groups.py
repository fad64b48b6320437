"""Members of a group share one Spark application: a spec that does not fit it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.supervisor.operations import SupervisorVerbs
from airflow_provider_coordination.supervisor.spec import IngestionSpec, SpecChange, change_between
from airflow_provider_coordination.supervisor.store import SupervisionStore
from tests.supervisor.source_simulation import SourceSimulation


def spec(source: str, tuning: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return the spec of a member."""
    return {
        "version": 1,
        "source": source,
        "reads": {"s3": {"paths": f"s3://{source}/in", "format": "json", "aws_conn_id": None}},
        "writes": [{"parquet": {"path": f"/data/lake/{source}"}}],
        "tuning": {"group": "small", **(tuning or {})},
        **changes,
    }


@pytest.fixture
def simulation() -> SourceSimulation:
    return SourceSimulation("S0")


def submit(simulation: SourceSimulation, other: dict[str, Any], mine: dict[str, Any]) -> None:
    """Submit the spec of another source, then one for this source."""
    views = SourceCoordinator(simulation.backend, "views", "host:bob", prefix=simulation.prefix)
    views.initialize()
    SupervisorVerbs(views).submit(other)
    SupervisorVerbs(simulation.coordinator("host:ann"), by="ann").submit(mine)


@pytest.mark.parametrize(
    ("theirs", "mine", "message"),
    [
        (
            {"spark": {"driver_memory": "1g"}},
            {"spark": {"driver_memory": "2g"}},
            "field 'tuning.spark.driver_memory' is '2g', but source 'views' of the same group 'small' has '1g'",
        ),
        (
            {},
            {"spark": {"packages": "org:kafka:1"}},
            "field 'tuning.spark.packages' is 'org:kafka:1', but source 'views' of the same group 'small' has missing",
        ),
        (
            {"spark": {"conf": {"spark.sql.ansi.enabled": True}}},
            {},
            "field 'tuning.spark.conf.spark.sql.ansi.enabled' is missing, but source 'views'",
        ),
        (
            {"coordination_conn_id": "another"},
            {},
            "field 'tuning.coordination_conn_id' is 'coordination_default', but source 'views'",
        ),
        (
            {"spark": {"conf": {"spark.my.password": "hunter22-of-views"}}},
            {"spark": {"conf": {"spark.my.password": "hunter22-of-mine"}}},
            "field 'tuning.spark.conf.spark.my.password'",
        ),
    ],
)
def test_member_with_another_application_is_refused(
    simulation: SourceSimulation, theirs: dict[str, Any], mine: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        submit(simulation, spec("views", theirs), spec("clicks", mine))
    assert message in str(refused.value)
    assert "give both the same value, or give this source another 'tuning.group'" in str(refused.value)
    assert "hunter22" not in str(refused.value)


@pytest.mark.parametrize("theirs", [{"group": "other", "spark": {"driver_memory": "1g"}}, {}])
def test_equal_members_and_other_groups_are_accepted(simulation: SourceSimulation, theirs: dict[str, Any]) -> None:
    submit(simulation, spec("views", theirs), spec("clicks", {"start_timeout": "PT5M"}))
    assert SupervisionStore(simulation.coordinator("ann").view).current() is not None


@pytest.mark.parametrize(
    ("theirs", "mine", "message"),
    [
        (
            {"parquet": {"path": "/data/lake/all"}},
            {"parquet": {"path": "/data/lake/all/"}},
            "'writes[0].path' is '/data/lake/all/', which source 'views' of the same group 'small' writes as well",
        ),
        (
            {"parquet": {"path": "s3://lake/all"}},
            {"parquet": {"path": "s3a://lake/other/../all/"}},
            "field 'writes[0].path' is 's3a://lake/other/../all/', which source 'views'",
        ),
        (
            {"sql": {"conn_id": "warehouse", "table": "public.events", "staging_path": "/data/views"}},
            {"sql": {"conn_id": "warehouse", "table": "public.events", "staging_path": "/data/clicks"}},
            "field 'writes[0].table' is 'public.events', which source 'views'",
        ),
    ],
)
def test_members_with_one_table_are_refused(
    simulation: SourceSimulation, theirs: dict[str, Any], mine: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        submit(simulation, spec("views", writes=[theirs]), spec("clicks", writes=[mine]))
    assert message in str(refused.value)


def test_tables_of_different_connections_are_accepted(simulation: SourceSimulation) -> None:
    table = {"table": "public.events", "staging_path": "/data/staging"}
    sinks = [[{"sql": {"conn_id": conn_id, **table}}] for conn_id in ("one", "other")]
    submit(simulation, spec("views", writes=sinks[0]), spec("clicks", writes=sinks[1]))


@pytest.mark.parametrize("name", ["a|b", "a b", "a@b", "x" * 65])
def test_unusable_group_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"spec: field 'tuning\.group'.* must be 1 to 64 characters without"):
        IngestionSpec.read(spec("clicks", {"group": name}))


def test_joining_a_group_replaces_the_jobs() -> None:
    alone, member = (IngestionSpec.read(spec("clicks", {"group": group})) for group in (None, "small"))
    assert change_between(alone, member) is SpecChange.JOBS


def test_weight_without_a_group_is_refused() -> None:
    IngestionSpec.read(spec("clicks", {"group": None}, rounds={"weight": 1}))
    IngestionSpec.read(spec("clicks", rounds={"weight": 4}))
    with pytest.raises(ConfigurationError, match=r"field 'rounds\.weight' is 2, but the source is in no group"):
        IngestionSpec.read(spec("clicks", {"group": None}, rounds={"weight": 2}))


def test_weight_beyond_its_limits_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'rounds\.weight' must be from 1 to 4; got 5"):
        IngestionSpec.read(spec("clicks", rounds={"weight": 5}))
