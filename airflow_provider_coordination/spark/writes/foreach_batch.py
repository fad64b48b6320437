"""Functions that receive batches, as sinks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.job_settings import check_function
from airflow_provider_coordination.spark.writes.writes import DescribedSink


@dataclass
class ForeachBatch(DescribedSink):
    """A function that receives the rows of each delivery and the ids of its batches, for the `writes` of operators.

    It receives each batch **at least once**.

    :param function: `module:function`, called with a DataFrame and a list of batch ids; ship its module with
        `py_files`. (templated)
    :param staging_path: where rows wait for the call: a path or URI that the driver and every executor reach.
        (templated)
    :param name: the sink's name, unique within the task: up to 64 letters, digits, `_` and `-`. (templated)
    :param where: which records the function receives: a SQL predicate over the written columns; all by default.
        (templated)
    :param aws_conn_id: the AWS connection for a staging path on S3; by default the AWS default credential chain.
        (templated)
    """

    kind: ClassVar[str] = "foreach_batch"
    folder_field: ClassVar[str] = "staging_path"

    function: str
    _: KW_ONLY
    staging_path: str

    def __post_init__(self) -> None:
        """Refuse a function in place of its name: Airflow would call it when it renders the field."""
        if callable(self.function):
            check_function("ForeachBatch: field 'function'", self.function)

    @property
    def sink_location(self) -> str:
        """See `DescribedSink.sink_location`: the function, and that it is called at least once."""
        return f"at-least-once://{self.function}"

    @override
    def check_together(self) -> None:
        super().check_together()
        check_function(f"{self.title}: field 'function'", self.function)
