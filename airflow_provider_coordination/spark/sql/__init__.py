"""Tables of SQL databases, as the sink of that kind writes them: one module a database, and what both share."""
