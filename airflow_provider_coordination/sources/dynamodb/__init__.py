"""DynamoDB as a source: the segments of a table's parallel scan, and the files of its point-in-time exports."""
