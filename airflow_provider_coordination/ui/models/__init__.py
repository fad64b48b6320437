"""What the routes answer, and what is sent to them: the shapes of the JSON, a module for each resource.

Instants are ISO 8601 in UTC, durations numbers of seconds.
"""
