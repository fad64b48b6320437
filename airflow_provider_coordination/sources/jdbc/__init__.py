"""Tables and queries of databases with a JDBC driver, divided into ranges of a numeric or time column."""
