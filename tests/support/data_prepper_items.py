"""Items as Data Prepper's source coordination writes them, attribute by attribute, for tests of their adoption.

Java prints an instant with no fraction of a second, or one of 3, 6 or 9 digits. Both of its coordinators are here: the
older one, with `|PARTITION` and `|GLOBAL_STATE` families, and the newer one, with families by type and global items
that have no status.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

SOURCE = "prod|clicks-pipeline"
PARTITIONS = f"{SOURCE}|PARTITION"
GLOBAL_STATE = f"{SOURCE}|GLOBAL_STATE"
GLOBAL = f"{SOURCE}|GLOBAL"
OWNER = "prod|clicks-pipeline:ip-10-0-0-1"

Item = dict[str, dict[str, Any]]


def java_instant(instant: datetime, digits: int = 6) -> str:
    """Return an instant as `Instant.toString` prints it, with this number of digits: 0, 3, 6 or 9."""
    text = instant.strftime("%Y-%m-%dT%H:%M:%S")
    fraction = {0: "", 3: ".123", 6: ".123456", 9: ".123456789"}[digits]
    return f"{text}{fraction}Z"


def item(
    key: str,
    status: str | None,
    priority: str,
    *,
    family: str = PARTITIONS,
    state: str | None = None,
    version: int = 3,
    **others: Any,
) -> Item:
    """Return an item; further attributes are given as DynamoDB takes them."""
    written: Item = {
        "sourceIdentifier": {"S": family},
        "sourcePartitionKey": {"S": key},
        "closedCount": {"N": "0"},
        "version": {"N": str(version)},
        "sourceStatusCombinationKey": {"S": f"{family}|{status or 'null'}"},
        "partitionPriority": {"S": priority},
    }
    if status:
        written["sourcePartitionStatus"] = {"S": status}
    if state is not None:
        written["partitionProgressState"] = {"S": state}
    return written | others


def item_set(now: datetime) -> dict[str, Item]:
    """Return items of every kind, by a name for each; leases and instants are placed around `now`."""
    minute = timedelta(minutes=1)
    past, future = now - 30 * minute, now + 8 * minute
    expires = {"expirationTime": {"N": str(int((now + 60 * minute).timestamp()))}}

    def leased(until: str) -> Item:
        return {"partitionOwner": {"S": OWNER}, "partitionOwnershipTimeout": {"S": until}}

    live, dead = java_instant(future, 9), java_instant(past, 9)
    soon, due = java_instant(future, 3), java_instant(past, 3)
    return {
        "fresh": item("bucket|a/fresh.json", "UNASSIGNED", java_instant(past, 0), version=0, **expires),
        "fresh-null": item(
            "bucket|a/null.json", "UNASSIGNED", java_instant(past, 3), state="null", version=1, **expires
        ),
        "with-state": item(
            "bucket|a/state.json", "UNASSIGNED", java_instant(past, 6),
            state='{"lastRecord" : 42.0, "nested":{"ü":[1,null]}, "big":12345678901234567890}', **expires,
        ),
        "given-up": item(
            "bucket|a/given-up.json", "UNASSIGNED", java_instant(future, 9), state='{"lastRecord":7}', **expires
        ),
        "unexpiring": item("bucket|a/unexpiring.json", "UNASSIGNED", java_instant(past, 9), state='{"lastRecord":1}'),
        "quoted": item("bucket|a/quoted.json", "UNASSIGNED", java_instant(past, 9), state='"2026-01-01T00:00:00Z"'),
        "corrupt": item("bucket|a/corrupt.json", "UNASSIGNED", java_instant(past, 0), state='{"lastRecord":'),
        "unknown": item(
            "bucket|a/unknown.json", "UNASSIGNED", java_instant(past, 0), state='{"lastRecord":3}',
            pluginVersion={"S": "2.9"}, tags={"L": [{"S": "a"}, {"NULL": True}]},
        ),
        "leased": item("bucket|b/leased.json", "ASSIGNED", live, state='{"lastRecord":9}', **leased(live), **expires),
        "expired": item("bucket|b/expired.json", "ASSIGNED", dead, state='{"lastRecord":5}', **leased(dead), **expires),
        "closed": item(
            "bucket|c/closed.json", "CLOSED", soon, reOpenAt={"S": soon}, closedCount={"N": "2"}, **expires
        ),
        "due": item("bucket|c/due.json", "CLOSED", due, reOpenAt={"S": due}, closedCount={"N": "1"}, **expires),
        "done": item("bucket|d/done.json", "COMPLETED", java_instant(future, 9), state='{"lastRecord":99}', **expires),
        "global-state": item(
            "GLOBAL_STATE_SOURCE_PARTITION_KEY_FOR_CREATING_PARTITIONS", "UNASSIGNED", java_instant(past, 0),
            family=GLOBAL_STATE, state='{"bucket":"2026-01-01T00:00:00Z"}', **expires,
        ),
        "leader": item(
            "GLOBAL", "ASSIGNED", dead, family=f"{SOURCE}|LEADER", state='{"initialized":true}', **leased(dead)
        ),
        "stream-state": item("arn:aws:dynamodb:eu-west-1:1:table/t", None, java_instant(past, 6), family=GLOBAL,
                             state='{"streamArn":"arn","closed":{"NULL":1}}', **expires),
        "export-state": item("export|1", None, java_instant(past, 0), family=GLOBAL),
        "file": item("file-1", "UNASSIGNED", java_instant(past, 3), family=f"{SOURCE}|DATAFILE", state='{"loaded":10}'),
    }  # fmt: skip


def create_table(client: Any, table: str) -> None:
    """Create the table as Data Prepper does."""
    throughput = {"ReadCapacityUnits": 10, "WriteCapacityUnits": 10}
    names = ("sourceIdentifier", "sourcePartitionKey", "sourceStatusCombinationKey", "partitionPriority")
    client.create_table(
        TableName=table,
        KeySchema=[
            {"AttributeName": "sourceIdentifier", "KeyType": "HASH"},
            {"AttributeName": "sourcePartitionKey", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "source-status",
                "KeySchema": [
                    {"AttributeName": "sourceStatusCombinationKey", "KeyType": "HASH"},
                    {"AttributeName": "partitionPriority", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
                "ProvisionedThroughput": throughput,
            }
        ],
        ProvisionedThroughput=throughput,
    )


def write_items(client: Any, table: str, items: dict[str, Item]) -> None:
    """Write items as they are."""
    for each in items.values():
        client.put_item(TableName=table, Item=each)


def stored_item(client: Any, table: str, written: Item) -> Item:
    """Return what the table holds now in the place of an item."""
    key = {name: written[name] for name in ("sourceIdentifier", "sourcePartitionKey")}
    found: Item = client.get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]
    return found
