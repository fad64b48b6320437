#!/bin/sh
# Creates .venv with exactly the pinned packages and this one. Requires only Python 3.11+; uv is downloaded if missing.
set -eu
cd "$(dirname "$0")/.."
. tools/certificates.sh

stop() { echo "bootstrap: $1" >&2; exit 1; }

suitable() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; }

find_python() {
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        if suitable "$candidate"; then
            # The interpreter itself, not the wrapper of a version manager.
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    return 1
}

python=$(find_python) || stop "no Python 3.11, 3.12, 3.13 or 3.14 was found: install one (Debian: apt-get install python3 python3-venv), or name it as in 'make PYTHON=/path/to/python3.11'"

if ! uv=$(command -v uv) || [ "$uv" = "$PWD/.venv/bin/uv" ]; then
    uv=$PWD/.tools/uv/bin/uv
    if ! "$uv" --version >/dev/null 2>&1; then
        echo "bootstrap: downloading uv with pip into .tools/uv"
        rm -rf .tools/uv
        "$python" -m venv .tools/uv >/dev/null 2>&1 || stop "'$python -m venv' does not work: install the venv module (Debian: apt-get install python3-venv)"
        .tools/uv/bin/python -m pip install --quiet --disable-pip-version-check uv || stop "pip could not download uv: check the network, or put uv on PATH"
    fi
fi

if ! suitable .venv/bin/python; then
    echo "bootstrap: creating .venv with $("$python" --version)"
    # Not `--clear`, which would also remove the servers in .venv.
    rm -rf .venv/bin .venv/lib .venv/lib64 .venv/pyvenv.cfg
    "$uv" venv --quiet --allow-existing --python "$python" .venv
fi

echo "bootstrap: installing the packages pinned in requirements/dev.txt"
# No links into uv's cache, which may be on another file system: .venv must not depend on it.
export UV_LINK_MODE="${UV_LINK_MODE:-copy}"
# Compile once, here, and not in the first of the many processes that import it.
export UV_COMPILE_BYTECODE=1
"$uv" pip sync --quiet --python .venv/bin/python requirements/dev.txt
"$uv" pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
echo "bootstrap: .venv is ready"
