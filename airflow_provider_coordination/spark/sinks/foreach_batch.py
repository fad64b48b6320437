"""A user's function that receives the rows of each delivery and the ids of its batches: at least once.

The function's effects cannot be part of a transaction here. If a job dies before it records the function's success, the
next job calls the function again. The function itself must use the ids to process each batch exactly once.
"""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError, load_transform
from airflow_provider_coordination.spark.membership import current_membership
from airflow_provider_coordination.spark.parquet_frames import read_frame, spark_schema
from airflow_provider_coordination.spark.sink_settings import SinkSettings, access_of
from airflow_provider_coordination.spark.sinks import Rows, SinkKind
from airflow_provider_coordination.spark.spark_errors import error_text
from airflow_provider_coordination.spark.staging import StagedSink
from airflow_provider_coordination.spark.writes import ForeachBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)


class ForeachBatchSink(StagedSink):
    """A user's function; a `Sink` that receives each batch at least once.

    :param name: the name of the sink.
    :param settings: the settings that name the function.
    :param where: which records the function receives, as a SQL predicate; None for all.
    :param access: how to reach the staging path.
    """

    def __init__(
        self, name: str, settings: ForeachBatch, where: str | None = None, access: Access = DEFAULT_ACCESS
    ) -> None:
        super().__init__(name, where, settings, access, f"{name} {settings.function}")
        self._settings = settings
        self._calling = threading.Lock()

    @override
    def check(self) -> None:
        # The module must exist; it is imported after the Spark session has started.
        self.check_staging("ForeachBatch")
        module = self._settings.function.partition(":")[0]
        try:
            is_found = importlib.util.find_spec(module) is not None
        except (ImportError, ValueError):
            is_found = False
        if not is_found:
            raise ConfigurationError(
                f"ForeachBatch {self.name!r}: field 'function' is {self._settings.function!r}, but there is no "
                f"module {module!r} where the job runs; ship it with 'py_files'"
            )
        log.info("sink %s: function %s receives each batch at least once", self.name, self._settings.function)

    @override
    def committed(self, attempts: Sequence[Attempt]) -> set[str]:
        # The effects of the function are unknown here, so no batch counts as committed.
        return set()

    @override
    def prepare(self, attempts: Sequence[Attempt], rows: Rows) -> None:
        # Imports the function, so an import error appears before any sink has the batches.
        load_transform(self._settings.function)
        self._staged.stage(attempts, rows)

    def commit(self, attempts: Sequence[Attempt]) -> None:
        """Call the function with the rows of all batches; one call at a time.

        :raises DeliveryError: if the function raises, or the staged files are incomplete.
        :raises MissingFileError: if the staged files are gone.
        """
        if not attempts:
            return
        found = [self._staged.find(attempt) for attempt in attempts]
        files = {file: size for each in found for file, size in each.files.items()}
        batch_ids = [attempt.batch_id for attempt in attempts]
        function: Callable[[DataFrame, list[str]], object] = load_transform(self._settings.function)  # type: ignore[assignment]
        with self._calling:
            try:
                function(self._rows(files), batch_ids)
            except Exception as error:
                raise DeliveryError(
                    f"function {self._settings.function!r} raised on {len(batch_ids)} batches (first: {batch_ids[0]}): "
                    f"{error_text(error)}"
                ) from error

    def _rows(self, files: Mapping[str, int]) -> DataFrame:
        """Return the rows of files with equal columns, by the session of the job, in any thread."""
        from pyspark.sql import SparkSession

        member = current_membership()
        session = None if member is None else member.session
        schema = spark_schema(self._staged.schema(next(iter(files))))
        return read_frame(session or SparkSession.builder.getOrCreate(), files, schema, self._access)


def _make(settings: SinkSettings) -> ForeachBatchSink:
    made = ForeachBatch.from_mapping(settings.settings)
    return ForeachBatchSink(settings.name, made, settings.where, access_of([settings]))


KIND = SinkKind(
    make=_make,
    writes="airflow_provider_coordination.spark.writes:ForeachBatch",
    is_exactly_once=False,
)
