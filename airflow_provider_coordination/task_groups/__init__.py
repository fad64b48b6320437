"""Task groups: what a DAG needs to ingest a source, wired in one call."""
