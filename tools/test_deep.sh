#!/bin/sh
# Runs the parts of `make test-deep` that are named in the arguments, one after another, and prints a line for each.
set -u
. tools/environment.sh

ended=0
for part in "$@"; do
    # Tests of one file or folder share what takes long to start; the cases of a search share nothing.
    case $part in
    strikes | tables) distribution="--dist worksteal" ;;
    *) distribution="--dist loadgroup --no-loadscope-reorder" ;;
    esac
    started=$(date +%s)
    # A search leaves files by the hundred thousand, and the next run would remove them for minutes.
    # With a blank before it, the name of a part that is also a folder's would decide which conftest pytest reads first.
    # shellcheck disable=SC2086
    python -m pytest -n 2 $distribution --timeout 3600 -o tmp_path_retention_policy=failed --deep --part="$part" || ended=1
    echo "deep $part: $(($(date +%s) - started)) s in all"
done
exit "$ended"
