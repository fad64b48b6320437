"""Tables and queries of databases with a JDBC driver, cut into ranges of a numeric or time column."""
