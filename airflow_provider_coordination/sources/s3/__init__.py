"""Objects of S3, and files of any filesystem that pyarrow supports, as a source."""
