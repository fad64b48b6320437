"""The OpenLineage facet of a coordinated job. Imported only if OpenLineage is installed."""

from __future__ import annotations

import attrs
from openlineage.client.generated.base import RunFacet


@attrs.define(kw_only=True)
class CoordinationRunFacet(RunFacet):
    """The job that ingested a source, and how much it delivered.

    :param source: the source's name.
    :param owner: the job's owner: host, DAG, run, task and try.
    :param reads: the kind of source.
    :param partitions: the number of partitions that had deliveries.
    :param records: the number of records delivered.
    :param deadLetters: the number of those records that are dead letters.
    """

    source: str
    owner: str
    reads: str
    partitions: int = 0
    records: int = 0
    deadLetters: int = 0  # noqa: N815 - OpenLineage's spelling
