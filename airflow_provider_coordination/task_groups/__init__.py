"""Task groups and DAGs that ingest a source, created by one call."""
