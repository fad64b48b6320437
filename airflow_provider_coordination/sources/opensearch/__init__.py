"""OpenSearch as a source: indices by pattern, each read by slices."""
