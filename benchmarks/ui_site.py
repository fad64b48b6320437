"""The Airflow whose pages `benchmarks.ui` measures: of the checkout that `PYTHONPATH` names, whichever commit that is.

Usage: python -P benchmarks/ui_site.py <partitions> <shards> <supervisors>. It prints its address, the token of a user
and the folder of its package as JSON, and ends when its standard input closes. It uses only what older commits have.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import airflow_provider_coordination
from tests.support.site import DAG, open_scenery, open_site
from tests.support.spark_job import REPOSITORY
from tests.support.standalone import starting_airflow
from tests.support.supervised import SupervisedSource

DAG_FILE = REPOSITORY / "tests" / "system" / "airflow" / "dags" / f"{DAG}.py"
SUPERVISED = "supervised"
"""The source whose supervisor has worked for an hour."""


def serve(partitions: int, shards: int, supervisors: int) -> None:
    """Serve until the standard input ends.

    :param partitions: of the source `logs`.
    :param shards: of the source `telemetry`.
    :param supervisors: the number of supervised sources.
    """
    logging.getLogger("airflow_provider_coordination").setLevel(logging.ERROR)  # the scenery is full of failures
    with tempfile.TemporaryDirectory(prefix="coordination-ui-", ignore_cleanup_errors=True) as name:
        folder, dags = Path(name), Path(name) / "brought"
        dags.mkdir()
        shutil.copy(DAG_FILE, dags)
        with (
            starting_airflow(folder, dags, {}) as airflow,
            open_scenery(airflow.store_url, partitions=partitions, shards=shards) as scenery,
        ):
            for number in range(1, supervisors):
                scenery.supervised(f"shop-{number:03}")
            with closing(SupervisedSource(scenery.url, SUPERVISED).hour()):
                airflow.wait_for_dags()
                with open_site(airflow, scenery, folder, away=None) as site:
                    package = str(Path(airflow_provider_coordination.__file__).parent)
                    print(json.dumps({"url": airflow.url, "token": site.tokens["op"], "package": package}), flush=True)
                    sys.stdin.read()


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
