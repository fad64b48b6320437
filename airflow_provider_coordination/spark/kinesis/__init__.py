"""The Kinesis parts of a Spark job: reading shards, and landing their records."""
