"""Deliveries name an unusable transform and describe their batches."""

from __future__ import annotations

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.delivery import load_transform
from airflow_provider_coordination.spark.validation import ValidatedBatch
from tests.support.sinks import an_attempt


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:clean", "No module named 'no_such_module'; ship its module with 'py_files'"),
        ("json:dump_it", "module 'json' has no 'dump_it'; name one that it has: 'dump"),
        ("json:clean", "module 'json' has no 'clean'; name one that it has: 'detect_encoding', 'dump', "),
        ("keyword:clean", "it defines no function, so check that .*keyword.py.* is the module meant"),
        ("no_such_module.inner:clean", "No module named 'no_such_module'; ship its module"),
        ("json:__name__", "is not a function"),
    ],
)
def test_unusable_transform_is_named(name: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_transform(name)


@pytest.mark.parametrize(("start", "shown"), [("", "from the start up to 3"), ("1", "after 1 up to 3")])
def test_batch_without_start_position_is_described(start: str, shown: str) -> None:
    batch = ValidatedBatch(None, an_attempt("a-1", start=start, end="3", records=301), ())  # type: ignore[arg-type]
    assert str(batch) == f"batch a-1 (301 records {shown})"
