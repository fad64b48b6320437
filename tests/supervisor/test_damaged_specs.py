"""Any content of a spec is read or refused with one clear error; nothing else is raised."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.supervisor.druid import from_druid
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from tests.supervisor.specs import SPEC
from tests.supervisor.test_druid import DRUID

# fmt: off
WORDS = st.sampled_from([
    "", "a", "PT1H", "P1M", "-PT1H", f"PT{'9' * 400}H", "2026-01-01T00:00:00Z", "TRIM_HORIZON", "module:name", "1",
    "kinesis", "s3", "parquet", "json", "csv", "path", "`a b` STRING", "x INT,", "{{ ds }}", "a|b", "max", "lagBased",
])
# fmt: on
NUMBERS = st.sampled_from([0, 1, -1, 2**70, 1.5, -0.0, 1e300, 10**400])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda below: st.lists(below, max_size=2) | st.dictionaries(WORDS, below, max_size=2),
    max_leaves=4,
)
FULL: Mapping[str, Any] = {
    **SPEC,
    "supervise": {
        **SPEC["supervise"],
        "event_time": "at",
        "late_message_rejection_start": "2026-01-01T00:00:00Z",
        "auto_scale": {"task_count_min": 1, "task_count_max": 4, "lag_collection_interval": 30},
    },
    "reads": {
        "kinesis": {**SPEC["reads"]["kinesis"], "bounds": {"start": "TRIM_HORIZON", "end": "2026-01-01T00:00:00Z"}}
    },
}
OTHERS = (
    {"s3": {"paths": ["s3://incoming/a"], "interval": "PT1M", "format_options": {"header": True}}},
    {"jdbc": {"table": "t", "column": "id", "lag": 5, "properties": {"a": "b"}}},
    {"dynamodb": {"table": "t", "expression_attribute_values": {":a": {"N": "1"}}}},
    {"dynamodb_export": {"location": "s3://incoming/a"}},
    {"opensearch": {"indices": ["a"], "query": {"match_all": {}}}},
    {"items": {"kind": "weather", "reader": "a:b", "supplier": "a:c", "reader_settings": {"x": 1}}},
)
FILTERED: Mapping[str, Any] = deepcopy(dict(DRUID))
FILTERED["spec"]["dataSchema"]["transformSpec"] = {
    "filter": {
        "type": "and",
        "fields": [
            {"type": "in", "dimension": "page", "values": ["a"]},
            {"type": "bound", "dimension": "added", "lower": 1, "ordering": "numeric"},
            {"type": "interval", "dimension": "__time", "intervals": ["2026-01-01/2026-01-02"]},
            {"type": "search", "dimension": "page", "query": {"type": "contains", "value": "a"}},
        ],
    }
}
FILTERED["spec"]["dataSchema"]["dimensionsSpec"]["dimensions"].append(
    {"name": "n", "type": "auto", "castToType": "LONG"}
)
FILTERED["spec"]["ioConfig"]["inputFormat"]["flattenSpec"] = {
    "fields": [{"type": "path", "name": "a", "expr": "$.b.a"}, {"type": "tree", "name": "c", "nodes": ["c"]}]
}
FILTERED["spec"]["ioConfig"]["autoScalerConfig"] = {
    "enableTaskAutoScaler": True, "taskCountMin": 1, "taskCountMax": 2, "scaleOutThreshold": 1000,
}  # fmt: skip
FILTERED["spec"]["tuningConfig"] |= {"maxParseExceptions": 5, "resetOffsetAutomatically": True}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of everything within a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in items:
        yield (*path, name)
        yield from places(each, (*path, name))


def damaged(whole: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return copies of a JSON object in which something is replaced, or added."""

    def damage(path: tuple[Any, ...], value: Any, added: str | None) -> dict[str, Any]:
        copy: Any = json.loads(json.dumps(whole))
        place = copy
        for name in path[:-1]:
            place = place[name]
        if added is not None and isinstance(place[path[-1]], dict):
            place[path[-1]][added] = value
        else:
            place[path[-1]] = value
        return copy  # type: ignore[no-any-return]

    return st.builds(damage, st.sampled_from(list(places(dict(whole)))), VALUES, st.none() | WORDS)


@given(st.one_of(damaged(FULL), *(damaged({**FULL, "reads": reads}) for reads in OTHERS)))
@settings(max_examples=300, deadline=None)
def test_damaged_spec_is_read_or_refused(values: dict[str, Any]) -> None:
    try:
        spec = IngestionSpec.read(values)
    except ConfigurationError:
        return
    assert IngestionSpec.read(spec.to_mapping()) == spec
    json.dumps(spec.effective())
    spec.job_arguments()


@given(damaged(FILTERED), st.none() | st.just("orders:split"))
@settings(max_examples=300, deadline=None)
def test_damaged_druid_spec_is_translated_or_refused(values: dict[str, Any], transform: str | None) -> None:
    try:
        translation = from_druid(values, lake="/lake", transform=transform)
    except ConfigurationError:
        return
    IngestionSpec.read(translation.spec)
