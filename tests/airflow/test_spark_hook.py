"""The private parts of the Spark provider's hook that one module uses exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

import airflow_provider_coordination
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators import spark_hook
from airflow_provider_coordination.operators.spark_hook import (
    HOOK_ATTRIBUTES,
    NOT_FOLLOWED,
    OPERATOR_ATTRIBUTES,
    SubmissionTarget,
    submission_target,
)

PACKAGE = Path(airflow_provider_coordination.__file__).parent


@pytest.fixture
def hook(connect: Any) -> SparkSubmitHook:
    connect("spark_default", "spark", host="spark://master", port=7077, extra={"deploy-mode": "client"})
    return SparkSubmitHook()


@pytest.mark.parametrize("name", HOOK_ATTRIBUTES)
def test_hook_of_the_provider_has_each_used_attribute(hook: SparkSubmitHook, name: str) -> None:
    assert hasattr(hook, name)


@pytest.mark.parametrize("name", OPERATOR_ATTRIBUTES)
def test_operator_of_the_provider_has_each_used_attribute(name: str) -> None:
    assert hasattr(SparkSubmitOperator(task_id="t", **NOT_FOLLOWED), name)


def test_each_attribute_is_listed_with_a_reason() -> None:
    listed = re.findall(r"^\| (hook|operator) \| `(\w+)` \| \S.+ \|$", spark_hook.__doc__ or "", re.MULTILINE)
    assert {name for of, name in listed if of == "hook"} == set(HOOK_ATTRIBUTES)
    assert {name for of, name in listed if of == "operator"} == set(OPERATOR_ATTRIBUTES)


def test_private_hook_attributes_are_listed_and_used_in_one_module() -> None:
    used = {
        path.name: set(found)
        for path in PACKAGE.rglob("*.py")
        if (found := re.findall(r"\bhook\.(_[a-z]\w*)|\bSparkSubmitHook\.(_\w+)", path.read_text()))
    }
    assert used == {"spark_hook.py": {(name, "") for name in HOOK_ATTRIBUTES}}


def test_submission_target_is_read_from_the_hook(hook: SparkSubmitHook) -> None:
    assert submission_target(hook) == SubmissionTarget(master="spark://master:7077", deploy_mode="client")


@pytest.mark.parametrize(
    ("master", "deploy_mode", "expected"),
    [
        ("local[2]", None, True),
        ("spark://master:7077", "client", True),
        ("yarn", "client", False),
        ("yarn", "cluster", False),
        ("k8s://https://api", "cluster", False),
    ],
)
def test_driver_location_follows_master_and_deploy_mode(master: str, deploy_mode: str | None, expected: bool) -> None:
    assert SubmissionTarget(master=master, deploy_mode=deploy_mode).is_on_this_machine is expected


@pytest.mark.parametrize(
    ("master", "option"),
    [
        ("yarn", "spark.yarn.submit.waitAppCompletion"),
        ("k8s://https://api", "spark.kubernetes.submission.waitAppCompletion"),
    ],
)
def test_cluster_submission_does_not_wait_for_the_end(master: str, option: str) -> None:
    target = SubmissionTarget(master=master, deploy_mode="cluster")
    assert target.conf_without_waiting({"a": "b"}) == {"a": "b", option: "false"}
    with pytest.raises(ConfigurationError, match=f"field 'conf': '{option}' must be false"):
        target.conf_without_waiting({option: "true"})


def test_standalone_cluster_without_python_drivers_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="use 'client'"):
        SubmissionTarget(master="spark://master:7077", deploy_mode="cluster").check()


@pytest.mark.parametrize("master", ["yarn", "k8s://https://api"])
def test_clusters_with_python_drivers_are_accepted(master: str) -> None:
    SubmissionTarget(master=master, deploy_mode="cluster").check()
