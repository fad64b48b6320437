"""Messages of a queue start a run, or end the waiting of one, which delivers the objects that they announce."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds

from tests.support.dynamodb_server import DynamoDbServer
from tests.support.s3_messages import s3_message
from tests.support.s3_server import S3Server
from tests.support.standalone import Standalone
from tests.system.airflow.conftest import ANNOUNCED_BUCKET, QUEUE_NAME, QUEUE_URL

DAG_ID = "s3_queue_ingestion"
WINDOW = "s3_queue_window"


def test_run_starts_on_arrival_and_delivers_each_object_once(
    airflow: Standalone, other_aws: Callable[..., None], s3: S3Server, dynamodb: DynamoDbServer, folder: Path
) -> None:
    bucket, sqs = s3.client(), dynamodb.sqs_client()
    bucket.create_bucket(Bucket=ANNOUNCED_BUCKET)
    sqs.create_queue(QueueName=QUEUE_NAME)
    other_aws(s3=s3.settings, sqs=dynamodb.settings)
    for number in range(3):
        body = json.dumps({"id": number}).encode()
        etag = bucket.put_object(Bucket=ANNOUNCED_BUCKET, Key=f"in/{number}.json", Body=body)["ETag"].strip('"')
        if number:  # the first one is found by the scan beside the queue
            message = s3_message(f"in/{number}.json", bucket=ANNOUNCED_BUCKET, etag=etag, size=len(body))
            for _ in range(2):
                sqs.send_message(QueueUrl=QUEUE_URL, MessageBody=message)
    airflow.watch_for(DAG_ID)

    def delivered(name: str = "announced") -> Counter[int]:
        output = folder / name
        found = (file.relative_to(output) for file in output.rglob("*.parquet"))
        files = [str(output / file) for file in found if not any(part.startswith(("_", ".")) for part in file.parts)]
        lines = ds.dataset(files, format="parquet").to_table(columns=["data"])["data"].to_pylist() if files else ()
        return Counter(json.loads(line)["id"] for line in lines)

    airflow.until("all objects are delivered", lambda: set(delivered()) == {0, 1, 2})
    airflow.pause(DAG_ID)
    assert delivered() == Counter(range(3))
    waiting = sqs.get_queue_attributes(QueueUrl=QUEUE_URL, AttributeNames=["All"])["Attributes"]
    counts = [int(waiting[f"ApproximateNumberOfMessages{part}"]) for part in ("", "NotVisible")]
    assert counts == [0, 0]

    airflow.unpause(WINDOW)  # which starts the run of last night

    def waiting_runs() -> list[str]:
        ids = [str(run["dag_run_id"]) for run in airflow.runs(WINDOW)]
        return [each for each in ids if airflow.task_state(WINDOW, each, "wait_for_objects") == "deferred"]

    airflow.until("the run waits", lambda: bool(waiting_runs()))
    [run_id] = waiting_runs()
    sqs.send_message(
        QueueUrl=QUEUE_URL, MessageBody=s3_message("in/2.json", bucket=ANNOUNCED_BUCKET, etag=etag, size=len(body))
    )
    assert airflow.wait_for_run(WINDOW, run_id) == "success"
    assert delivered("window") == Counter([2])
