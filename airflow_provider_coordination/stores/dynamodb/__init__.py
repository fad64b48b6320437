"""Keeps partitions in a DynamoDB table, in the format of Data Prepper's source coordination."""

from airflow_provider_coordination.stores.dynamodb.store import DynamoDbStore

__all__ = ["DynamoDbStore"]
