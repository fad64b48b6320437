"""Exports of DynamoDB tables to S3."""
