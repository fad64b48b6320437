#!/bin/sh
# Checks the pages in Airflow's UI with the TypeScript compiler, eslint, prettier and their tests. npm fetches these into
# pages/node_modules. If npm fails, nothing is checked; with CI=true that is an error.
set -eu
cd "$(dirname "$0")/.."
. tools/certificates.sh
. tools/environment.sh
. tools/node.sh

installed=pages/node_modules/.installed

if ! cmp -s pages/package-lock.json "$installed"; then
    echo "pages: downloading what pages/package-lock.json pins with npm into pages/node_modules"
    (cd pages && npm ci --legacy-peer-deps --ignore-scripts --no-audit --no-fund --silent) || {
        echo "pages: npm could not download what pages/package-lock.json pins: check the network and npm's registry setting; the pages are not checked" >&2
        [ "${CI:-}" != true ]
        exit
    }
    cp pages/package-lock.json "$installed"
fi

PYTHONPATH=. python tools/api_schema.py >pages/openapi.json
cd pages
npm run --silent types >/dev/null 2>&1
node node_modules/typescript/bin/tsc
node node_modules/eslint/bin/eslint.js .
node node_modules/prettier/bin/prettier.cjs --check --log-level warn .
node node_modules/vitest/vitest.mjs run --reporter=dot --silent
