"""Parquet datasets as sinks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

from airflow_provider_coordination.settings import Limits
from airflow_provider_coordination.spark.sink_settings import PARQUET
from airflow_provider_coordination.spark.writes.writes import DescribedSink

TARGET_FILE_BYTES = 128 * 2**20


@dataclass
class ParquetDataset(DescribedSink):
    """A folder of Parquet files, for the `writes` of operators.

    :param path: the location: a path or URI that the driver and every executor reach, such as `/data/lake/clicks` or
        `s3://lake/clicks`. (templated)
    :param name: the sink's name, unique within the task: up to 64 letters, digits, `_` and `-`. (templated)
    :param where: which records the sink receives: a SQL predicate over the written columns; all by default. (templated)
    :param target_file_bytes: the maximum number of landed bytes in a shared file, which holds several batches of a
        delivery. A batch is always complete in one file. If other parties acknowledge batches, each
        batch has a file of its own. (templated)
    :param aws_conn_id: the AWS connection for a path on S3, and for landed data and dead letters in the same bucket; by
        default the AWS default credential chain. (templated)
    """

    kind: ClassVar[str] = PARQUET

    path: str
    _: KW_ONLY
    target_file_bytes: Annotated[int, Limits(minimum=1)] = TARGET_FILE_BYTES
