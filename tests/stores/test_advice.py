"""The advice for a user about a database that cannot be used."""

from __future__ import annotations

import pytest
from sqlalchemy import exc

from airflow_provider_coordination.stores.sql_database import advice_for, remedy_for

REACH = "check the host and the port in 'url', and that this machine can reach them"
GRANT = (
    "grant this role SELECT, INSERT, UPDATE and DELETE on the table and on the one with the suffix '_schema'; "
    "if they do not exist yet, initialize the store once as a role that may create them"
)


def met(*said: object) -> exc.DBAPIError:
    """Return the error that SQLAlchemy makes of a driver's."""
    return exc.OperationalError("SELECT 1", {}, Exception(*said))


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (('connection to server at "127.0.0.1", port 9 failed: Connection refused\n\tIs the server running',), REACH),
        (("connection timeout expired",), REACH),
        ((2003, "Can't connect to MySQL server on 'db' (timed out)"), REACH),
        (("failed to resolve host 'nowhere': [Errno -2] Name or service not known",), "check the host in 'url'"),
        (('FATAL:  password authentication failed for user "ann"',), "check the login and the password"),
        (("connection failed: fe_sendauth: no password supplied",), "check the login and the password"),
        (('FATAL:  role "ann" does not exist',), "check the login and the password"),
        ((1045, "Access denied for user 'ann'@'localhost' (using password: YES)"), "check the login and the password"),
        (('FATAL:  database "x" does not exist',), "create the database, or check its name in 'url'"),
        ((1049, "Unknown database 'x'"), "create the database, or check its name in 'url'"),
        (
            (1044, "Access denied for user 'ann'@'%' to database 'x'"),
            "grant this role rights on the database, or check its name in 'url'",
        ),
        (
            ('no pg_hba.conf entry for host "10.0.0.1", user "ann"',),
            "let the server accept this role from this machine",
        ),
        (("permission denied for table coordination_partition",), GRANT),
        ((1142, "SELECT command denied to user 'ann'@'%' for table 'coordination_partition'"), GRANT),
        (("the sky is falling",), None),
    ],
)
def test_error_comes_with_its_remedy(said: tuple[object, ...], advice: str | None) -> None:
    assert advice_for(met(*said)) == advice


def test_role_without_read_access_is_not_advised_to_create() -> None:
    assert remedy_for(met("permission denied for table coordination_partition")) == ""
    create = remedy_for(met(1142, "CREATE command denied to user 'ann'@'%' for table 'coordination_partition'"))
    assert create == "let this role create and alter tables, or initialize the store once as a role that may do so"
