"""The parts of a Spark job that only streams of DynamoDB tables need."""
