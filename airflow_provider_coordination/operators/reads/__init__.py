"""The sources that a DAG describes: one class for each kind of source, given to the operators as `reads`."""
