#!/bin/sh
# Creates .tools/lowest: the lowest versions that pyproject.toml allows, this package, and the tools of its tests.
set -eu
cd "$(dirname "$0")/.."
. tools/certificates.sh

uv=$PWD/.venv/bin/uv
python=.tools/lowest/bin/python
[ -x "$python" ] || "$uv" venv --quiet --python .venv/bin/python .tools/lowest
"$uv" pip sync --quiet --python "$python" requirements/lowest.txt
# The tools of the tests are not part of the supported versions, so they have the pinned ones.
tools=$(sed -n 's/^\(google-cloud-dataproc\|hypothesis\|pytest\|pytest-timeout\|pytest-xdist\|statsd\)==.*/&/p' requirements/dev.txt)
# shellcheck disable=SC2086 # one word per tool
"$uv" pip install --quiet --python "$python" --constraint requirements/lowest.txt $tools
"$uv" pip install --quiet --python "$python" --no-deps --editable .
echo "lowest: .tools/lowest is ready"
