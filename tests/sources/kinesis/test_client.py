"""Decisions about shards need no AWS SDK."""

from __future__ import annotations

import subprocess
import sys

from tests.support.waiting import PATIENCE_SECONDS


def test_package_imports_without_the_aws_sdk() -> None:
    modules = "aggregation client leases progress reader shards sync"
    imports = "; ".join(f"import airflow_provider_coordination.sources.kinesis.{module}" for module in modules.split())
    check = f"import sys; {imports}; assert not {{'boto3', 'botocore'}} & set(sys.modules)"

    subprocess.run([sys.executable, "-c", check], check=True, timeout=PATIENCE_SECONDS)
