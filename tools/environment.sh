# Sourced from the repository's root before each command of the Makefile: the same environment on every machine.
SPARK_LOCAL_IP=127.0.0.1
TZ=UTC
export SPARK_LOCAL_IP TZ
# Ignore the user's virtual environment and Spark.
unset VIRTUAL_ENV PYTHONHOME PYTHONPATH SPARK_HOME PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON
# Many processes import the same packages: the first one compiles them for the others.
unset PYTHONDONTWRITEBYTECODE

# Spark needs Java 17 or newer: from JAVA_HOME, from PATH, from the system, or from .venv.
java_is_new_enough() {
    [ -n "$1" ] && [ -x "$1/bin/java" ] || return 1
    major=$("$1/bin/java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${major:-0}" -ge 17 ]
}

find_java() {
    on_path=$(command -v java || true)
    [ -z "$on_path" ] || on_path=$(dirname "$(dirname "$(readlink -f "$on_path")")")
    for home in "${JAVA_HOME:-}" "$on_path" /usr/lib/jvm/* "$PWD"/.venv/jdk/* "$PWD"/.venv/jdk/*/Contents/Home; do
        if java_is_new_enough "$home"; then
            echo "$home"
            return
        fi
    done
    return 1
}

if JAVA_HOME=$(find_java); then
    PATH="$PWD/.venv/bin:$JAVA_HOME/bin:$PATH"
    export JAVA_HOME
else
    PATH="$PWD/.venv/bin:$PATH"
    unset JAVA_HOME
fi
export PATH
