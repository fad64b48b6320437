"""Objects of S3, and files of any filesystem that pyarrow reaches, as a source."""
