"""Tables of SQL databases, as the `sql` sink writes them: one module for each database, and their common parts."""
