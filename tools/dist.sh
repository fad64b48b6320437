#!/bin/sh
# Builds the sdist of the commit that is checked out, and the wheel from that sdist, in dist/. The same commit gives the same bytes.
set -eu
cd "$(dirname "$0")/.."
. tools/certificates.sh
. tools/environment.sh

changed=$(git status --porcelain)
[ -z "$changed" ] || { echo "dist: commit these files or remove them, since the archives are made from the folder:
$changed" >&2; exit 1; }
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

python tools/pages.py # hatchling would only warn without it
rm -rf dist
python -m build --no-isolation --outdir dist
python -m twine check --strict dist/*
(cd dist && sha256sum -- *)
