"""The differences between versions of Spark, and nothing else of the package knows any.

Spark 3.5 and 4 have the same results here. A function asks for a feature, not for a version: vendors backport features.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.membership import mark_jobs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

log = logging.getLogger(__name__)

SETTINGS: Mapping[str, str] = {
    # Spark 4.2.0 hangs forever on a Python UDF over Parquet otherwise (SPARK-58241, fixed in 4.2.1).
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
}
"""Spark's settings that jobs need because of a version; other versions ignore them."""
DEFAULTS: Mapping[str, str] = {"spark.sql.ansi.enabled": "true"}
"""Spark's settings with a default that differs between versions. A job takes these if the user sets none."""
OF_FUNCTION = "38000"
"""The SQLSTATE of an error that a function in Python raises."""
OF_RAISE = "P0001"
"""The SQLSTATE of an error that `raise_error` raises."""
EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
"""The beginning of the names of the JVM's classes of expressions, and of what is compiled of them."""
WIDER = frozenset({("int", "smallint"), ("bigint", "int"), ("double", "float")})
"""The types that Spark 3.5 gives columns of some JDBC drivers, and those that Spark 4 gives them."""
CANCELLED = re.compile(r"SPARK_JOB_CANCELLED|SparkException: Job \d+ cancelled ")
"""The text of Spark's error for a cancelled job, which is no error of a partition."""
OTHER_PYTHON = re.compile(
    r"\[PYTHON_VERSION_MISMATCH\][^\n]* \(?(?P<major>\d+)(?:\.|, )(?P<minor>\d+)\)? than that in driver"
    r"|Error from python worker:\s.*?/python(?P<newer>3\.\d+)/runpy\.py",
    re.DOTALL,
)
"""The messages of Spark if executors have another Python. Spark 3.5 writes `(3, 9)`, and Spark 4 `3.9`. The workers of
Spark 4 cannot even be imported by Python 3.9."""
VARIANT = "VARIANT"
ZONE = "UTC"


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow types of Spark's types. Instants are in UTC, as they always are before Spark 4.2."""
    from pyspark.sql.pandas.types import to_arrow_schema

    takes_zone = "timezone" in signature(to_arrow_schema).parameters
    convert = partial(to_arrow_schema, timezone=ZONE) if takes_zone else to_arrow_schema
    return convert(schema)


def frame_schema(columns: pa.Schema) -> StructType:
    """Return Spark's types of Arrow types. A timestamp without a zone stays one, as by default from Spark 4.2."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(columns, prefer_timestamp_ntz=True)


def arrow_table(rows: DataFrame) -> pa.Table:
    """Return the rows of a frame."""
    import pyarrow as pa

    if hasattr(rows, "toArrow"):
        return rows.toArrow()
    return pa.Table.from_batches(cast("Any", rows)._collect_as_arrow(), arrow_schema(rows.schema))


def type_of_ddl(ddl: str) -> DataType:
    """Return the type that a text in SQL describes; columns and types describe a `StructType`. Needs a Spark session.

    :raises PySparkException: if the text describes none.
    :raises ConfigurationError: if this Spark does not have one of the types.
    """
    from pyspark.sql import types

    if hasattr(types.StructType, "fromDDL"):
        return types.StructType.fromDDL(ddl)
    try:
        return types._parse_datatype_string(ddl)
    except Exception as error:
        if f'"{VARIANT}"' in str(error):
            raise ConfigurationError(
                f"schema {ddl!r}: {VARIANT} {too_old()}; declare the column as STRING, and parse it in the transform"
            ) from None
        raise


def imported_spark() -> str:
    """Return the version of the pyspark that this process imports."""
    import pyspark

    return pyspark.__version__


def too_old() -> str:
    """Return the end of a sentence about something that this Spark is too old for."""
    return f"needs Spark 4.0 or newer; this is Spark {imported_spark()}"


def activate(spark: SparkSession) -> None:
    """Prepare this thread for a session: its jobs are the job's, its expressions take settings such as ANSI mode."""
    from pyspark.sql import Column

    mark_jobs(spark.sparkContext)
    if not hasattr(Column, "try_cast"):  # Spark 3.5 takes the defaults in a thread that has not used the session
        session: Any = spark
        session._jvm.org.apache.spark.sql.SparkSession.setActiveSession(session._jsparkSession)


def as_read_from_database(column: Column, kind: str, wanted: str) -> Column:
    """Return a column of a JDBC driver with the type that every Spark gives it.

    :param kind: the type that this Spark gave it.
    :param wanted: the type that the table of the database's types has.
    """
    return column.cast(wanted) if (kind, wanted) in WIDER else column


def is_valid_utf8(text: Column) -> Column:
    """Return whether the bytes of a text are UTF-8."""
    from pyspark.sql import functions

    if hasattr(functions, "is_valid_utf8"):
        return functions.is_valid_utf8(text)
    # Java decodes what is no UTF-8 to U+FFFD, so it has other bytes then.
    return functions.encode(functions.decode(text.cast("binary"), "UTF-8"), "UTF-8") == text.cast("binary")


def try_cast(value: Column, kind: str) -> Column:
    """Return a value as another type; null where a cast in ANSI mode fails.

    :param kind: the type in SQL.
    """
    from pyspark import SparkContext
    from pyspark.sql import Column

    if hasattr(Column, "try_cast"):  # a column has any attribute: it takes those it does not know for fields
        return value.try_cast(kind)
    # Spark 3.5 has `try_cast` in SQL only, which cannot name the variable of a lambda function.
    context: Any = SparkContext._active_spark_context
    spark, column = context._jvm.org.apache.spark.sql, cast("Any", value)
    expressions = spark.catalyst.expressions
    nothing, to = context._jvm.scala.Option.empty(), spark.types.DataType.fromDDL(kind)
    return Column(spark.Column(expressions.Cast(column._jc.expr(), to, nothing, expressions.EvalMode.TRY())))


def condition_of(error: BaseException) -> str:
    """Return the name of an error's condition, such as `UNRESOLVED_COLUMN.WITH_SUGGESTION`; empty if it has none."""
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    if not isinstance(error, PySparkException):
        # As Spark 4 names what Spark 3.5 raises as an error of Python.
        is_of_frame = isinstance(error, AttributeError) and isinstance(error.obj, DataFrame)
        return "ATTRIBUTE_NOT_SUPPORTED" if is_of_frame else ""
    condition = error.getCondition() if hasattr(error, "getCondition") else error.getErrorClass()
    return condition or ""


def sql_state(error: BaseException) -> str:
    """Return the SQLSTATE of a query's error, or of its cause; empty if it has none."""
    from pyspark.errors import PythonException

    origin: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None) or error
    while origin is not None:
        try:
            if state := origin.getSqlState():
                return str(state)
        except Exception:  # not every Java exception has one, and only a call shows that
            log.debug("no SQLSTATE: %s", type(origin))
        if state := _older_state(origin):
            return state
        origin = origin.getCause() if hasattr(origin, "getCause") else None
    return OF_FUNCTION if isinstance(error, PythonException) else ""


def is_cancellation(error: BaseException) -> bool:
    """Return whether an error means that the job was cancelled."""
    return CANCELLED.search(str(error)) is not None


def error_of_job(error: BaseException) -> BaseException:
    """Return the error of an expression for one that only reports that its job ended; otherwise the same error."""
    of_java: Any = getattr(error, "java_exception", None)
    cause = None if of_java is None else of_java.getCause()
    if cause is None or not cause.getClass().getName().startswith("org.apache.spark.Spark"):
        return error
    from pyspark.errors.exceptions import captured

    converted: BaseException = captured.convert_exception(cause)
    return error if isinstance(converted, captured.UnknownException) else converted


def python_of_executors(text: str) -> str | None:
    """Return the minor version of the executors' Python that an error of Spark names; None if it names none.

    :param text: the text of the error.
    """
    match = OTHER_PYTHON.search(text)
    if match is None:
        return None
    return match["newer"] or f"{match['major']}.{match['minor']}"


def _older_state(origin: Any) -> str:
    """Return the SQLSTATE that Spark 4 gives an error to which Spark 3.5 gives none; empty for others."""
    if not hasattr(origin, "getStackTrace"):
        return ""
    name, frames = origin.getClass().getName(), origin.getStackTrace()
    if name == "org.apache.spark.api.python.PythonException":
        return OF_FUNCTION
    is_raised = name == "java.lang.RuntimeException" and frames and frames[0].getClassName().startswith(EXPRESSIONS)
    return OF_RAISE if is_raised else ""
