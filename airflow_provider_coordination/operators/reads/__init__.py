"""What a DAG says of a source beside Kinesis: one class a kind of source, given to the operators as `reads`."""
