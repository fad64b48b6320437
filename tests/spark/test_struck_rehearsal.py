"""A rehearsal is struck at each of its calls. It disturbs no other job, and no file of a dead one stays."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from airflow_provider_coordination.spark import storage
from airflow_provider_coordination.spark.kinesis.shard_format import RECORD_SCHEMA, SHARD_RECORDS
from airflow_provider_coordination.spark.sinks import make_sinks
from airflow_provider_coordination.spark.spark_versions import frame_schema
from airflow_provider_coordination.spark.transformed_delivery import TransformedDelivery
from tests.support.dag_versions import OLD, ArrowTransformation
from tests.support.depth import each_or_every
from tests.support.freezing import Strike
from tests.support.sinks import ParquetUnderTest
from tests.support.striking import STRIKES, calls_of, strike_at

pytestmark = [pytest.mark.integration, pytest.mark.deep]

KILLS = (Strike.KILLED_BEFORE, Strike.KILLED_AFTER)


class Rehearsal:
    """A job that rehearses, and another one that starts at the same landing path.

    :param folder: an empty folder.
    :param is_old: whether the other one starts a day later.
    :param object_store: see `counted_files`; folders say nothing there.
    """

    def __init__(self, folder: Path, *, is_old: bool, object_store: str) -> None:
        self._has_folders = not object_store
        self.landing = folder / "landing"
        self.landing.mkdir(parents=True)
        self._kept = timedelta(0) if is_old else storage.PROBES_KEPT
        sinks = make_sinks([ParquetUnderTest().settings(folder / "main")])
        self._delivery = TransformedDelivery(ArrowTransformation(OLD, SHARD_RECORDS), sinks, source="clicks")
        self.is_over = False

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in self.landing.rglob("*") if path.is_file())

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left."""
        return not (list(self.landing.iterdir()) if self._has_folders else self.files)

    def by_victim(self) -> None:
        self._delivery.rehearse(frame_schema(RECORD_SCHEMA), str(self.landing))
        self.is_over = True

    def by_successor(self) -> None:
        """Start, which removes the files of dead jobs and no others."""
        before = self.files
        self.start(self._kept)
        assert self.files == ([] if self._kept == timedelta(0) else before)

    def start(self, kept: timedelta) -> None:
        with patch.object(storage, "PROBES_KEPT", kept):
            storage.check_writable("field 'landing_path'", str(self.landing))


@pytest.mark.parametrize("object_store", ["", "s3"], ids=["files", "objects"])
@pytest.mark.parametrize("is_old", [False, True], ids=["recent", "old"])
@pytest.mark.parametrize("strike", STRIKES)
def test_struck_rehearsal_leaves_nothing_for_good(
    tmp_path: Path, strike: Strike, is_old: bool, object_store: str
) -> None:
    counted = Rehearsal(tmp_path / "counted", is_old=is_old, object_store=object_store)
    made = calls_of(counted, object_store)
    assert sum("rehearsal" in call for call in made) > 10 and counted.is_clean
    for point in each_or_every(10, len(made), strike, is_old, object_store):
        rehearsal = Rehearsal(tmp_path / str(point), is_old=is_old, object_store=object_store)
        struck = strike_at(point, strike, rehearsal, object_store)
        assert rehearsal.is_over is (strike not in KILLS), struck
        rehearsal.start(timedelta(0))
        assert rehearsal.is_clean, struck
