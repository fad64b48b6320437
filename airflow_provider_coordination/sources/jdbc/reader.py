"""Reading ranges through Spark, since JDBC drivers are Java.

The password is only passed to the driver, as a property of the connection. It is not in the URL, Spark's configuration,
a plan or a log line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import read_settings
from airflow_provider_coordination.sources.items import Item, ItemUnreadableError
from airflow_provider_coordination.sources.jdbc.ranges import Range
from airflow_provider_coordination.sources.jdbc.settings import DRIVERS, JdbcSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECTOR_J = DRIVERS["mysql"][0]


class RangeReader:
    """Reads ranges of a table or query; a `FrameReader`, and `Checking`.

    :param settings: the connection, and the table or query.
    :raises ConfigurationError: if a setting is invalid.
    """

    def __init__(self, settings: JdbcSettings) -> None:
        settings.check()
        self._settings = settings
        self._driver = settings.driver_class

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> RangeReader:
        """Make it from a JSON object.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        return cls(read_settings(JdbcSettings, "jdbc settings", settings))

    def check(self, spark: SparkSession) -> None:
        """See `Checking.check`: the driver must be on the class path.

        :raises ConfigurationError: naming the driver, and the package that has it.
        """
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        try:
            spark._jvm.org.apache.spark.util.Utils.classForName(self._driver, True, False)  # type: ignore[union-attr]
        except Py4JJavaError as error:
            package = next((package for driver, package in DRIVERS.values() if driver == self._driver), None)
            named = f"packages='{package}:<version>'" if package else "the package that has it as 'packages'"
            raise ConfigurationError(
                f"JDBC driver {self._driver!r} cannot be loaded by Spark: {error.java_exception.toString()}; give the "
                f"operator {named}, or the driver's jar as 'jars'"
            ) from None

    def frame(self, spark: SparkSession, items: Sequence[Item]) -> DataFrame:
        """See `FrameReader.frame`: each item is one predicate, and so one Spark partition."""
        predicates = [self._predicate(item) for item in items]
        return spark.read.jdbc(
            self._settings.url, self._settings.relation, predicates=predicates, properties=self._properties()
        )

    def origin(self, item: Item) -> str:
        """See `ItemReader.origin`."""
        return f"{self._settings.name}: {Range.from_item(item)}"

    def _predicate(self, item: Item) -> str:
        read = Range.from_item(item)
        try:
            return read.predicate(self._settings.dialect)
        except ValueError as error:
            raise ItemUnreadableError(f"{self._settings.name}: {read}: {error}") from None

    def _properties(self) -> dict[str, str]:
        settings = self._settings
        properties = {
            **settings.properties,
            "driver": self._driver,
            "fetchsize": str(settings.fetch_size),
            # A time without a zone is unchanged, whatever the time zone of the JVM.
            "preferTimestampNTZ": "true",
        }
        if self._driver == CONNECTOR_J:
            properties.setdefault("useCursorFetch", "true")  # otherwise all rows of a range are fetched at once
        given = {
            "user": settings.user,
            "password": settings.password,
            "sessionInitStatement": settings.session_statement,
        }
        return properties | {name: value for name, value in given.items() if value is not None}
