from __future__ import annotations

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.delivery import load_transform


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:clean", "No module named 'no_such_module'; ship its module with 'py_files'"),
        ("json:no_such_function", "cannot be imported: AttributeError"),
        ("json:__name__", "is not a function"),
    ],
)
def test_a_transform_that_cannot_be_used_is_named(name: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_transform(name)
