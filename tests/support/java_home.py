"""Stand-ins for a Java home, and for a `spark-submit` that archives classes."""

from __future__ import annotations

from pathlib import Path

ARCHIVING = """#!/bin/sh
for option in $SPARK_SUBMIT_OPTS; do
    case $option in
    -XX:ArchiveClassesAtExit=*) echo coordination-rehearsed; echo an archive >"${option#*=}" ;;
    -Xlog:class+load:file=*) echo 'A source: shared objects file (top)' >"${option#*file=}" ;;
    esac
done
"""

TOO_OLD = """
Error: LinkageError occurred while loading main class org.apache.spark.launcher.Main
    java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main has been compiled by a more recent version \
of the Java Runtime (class file version 61.0), this version of the Java Runtime only recognizes class file versions \
up to 55.0
"""
"""The output of Spark 4's spark-submit with Java 11."""


def make_java(folder: Path, version: str, machine: str = "OpenJDK 64-Bit Server VM") -> str:
    """Make a Java that knows nothing but its version; return its home."""
    (folder / "bin").mkdir(parents=True)
    (folder / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_RUNTIME_VERSION="{version}+6"\n')
    program(
        folder / "bin" / "java", f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01\n{machine} (build)' >&2\n"
    )
    return str(folder)


def program(path: Path, text: str) -> str:
    """Write a program; return its path."""
    path.write_text(text)
    path.chmod(0o755)
    return str(path)
