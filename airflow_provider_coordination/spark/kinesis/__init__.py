"""What a Spark job needs of Kinesis: reading shards, and landing them."""
