"""The JSON of responses and request bodies, a module for each resource.

Instants are ISO 8601 in UTC, durations numbers of seconds.
"""
