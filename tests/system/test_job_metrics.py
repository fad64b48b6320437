"""What a whole job counts reaches a collector, however the job ends."""

from __future__ import annotations

from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.spark.metrics import IngestionMetric
from tests.support.metric_receivers import otlp_receiver
from tests.support.spark_job import MakePipeline


def test_a_job_that_dies_with_its_jvm_still_exports_what_it_counted(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(2)
    pipeline.send(5)
    pipeline.sync()
    with otlp_receiver() as collector:
        job = pipeline.start(
            until_caught_up=False,
            env={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "OTEL_METRIC_EXPORT_INTERVAL": "500"},
        )
        job.wait_for("round 1:")
        collector.wait_for(lambda c: any(p.name == IngestionMetric.RECORDS_DELIVERED for p in c.points))
        driver = job.driver()
        job.process.kill()
        driver.wait(60)
    last = {name: collector.last(name) for name in {point.name for point in collector.points}}
    assert last[IngestionMetric.RECORDS_LANDED].value == last[IngestionMetric.RECORDS_DELIVERED].value == 50
    assert last[IngestionMetric.MILLIS_BEHIND_LATEST].kind == "gauge"
    assert last[CoordinationMetric.PARTITIONS_ACQUIRED].value == 2
    assert last[CoordinationMetric.PARTITIONS_GIVEN_UP].value == 2, "counted after the JVM was gone"
    for point in last.values():
        to = {"sink": "main"} if point.name == IngestionMetric.SINK_RECORDS else {}
        assert point.tags == {"source": "clicks", "store": "sqlite"} | to
        assert point.resource["service.instance.id"] == job.settings.owner
