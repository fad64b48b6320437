"""The streams of DynamoDB tables as a source: every shard is one partition, as those of Kinesis.

What shards have in common is in `sources/kinesis`: which become partitions, their progress, their audit, resets, and
how they are read. Here is what differs: `client` makes a Kinesis client's calls of those of DynamoDB Streams, and
`changes` are the records.
"""

from __future__ import annotations

from collections.abc import Mapping

MAX_RECORDS_PER_READ = 1000
"""The maximum number of records of a page, which also holds 1 MB at most."""
VIEWS: Mapping[str, frozenset[str]] = {
    "KEYS_ONLY": frozenset(),
    "NEW_IMAGE": frozenset({"new"}),
    "OLD_IMAGE": frozenset({"old"}),
    "NEW_AND_OLD_IMAGES": frozenset({"new", "old"}),
}
"""The images that the records of a stream hold besides keys, by its view type."""
