"""The sinks that a DAG describes: one class for each kind of sink, given to the operators as `writes`."""
