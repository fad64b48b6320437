#!/bin/sh
# Makes .tools/lowest: the lowest versions that pyproject.toml allows, this package, and what runs its tests.
set -eu
cd "$(dirname "$0")/.."
. tools/certificates.sh

uv=$PWD/.venv/bin/uv
python=.tools/lowest/bin/python
[ -x "$python" ] || "$uv" venv --quiet --python .venv/bin/python .tools/lowest
"$uv" pip sync --quiet --python "$python" requirements/lowest.txt
# The tests' own tools are no part of what is supported: they have the pinned versions.
tools=$(sed -n 's/^\(hypothesis\|pytest\|pytest-timeout\|pytest-xdist\|statsd\)==.*/&/p' requirements/dev.txt)
# shellcheck disable=SC2086 # a word a tool
"$uv" pip install --quiet --python "$python" --constraint requirements/lowest.txt $tools
"$uv" pip install --quiet --python "$python" --no-deps --editable .
echo "lowest: .tools/lowest is ready"
