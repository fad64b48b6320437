"""Audit: the ranges of a source that were read, compared with what each sink really has.

Three things are compared: the progress of each partition in the store, what the sink recorded of each batch when it
took the batch, and the sink's files or rows themselves. None of them is trusted alone.
"""
