#!/bin/sh
# Checks the JavaScript of the pages with eslint, and with the TypeScript compiler by the types in its comments. npm
# downloads both, and React's types, into .tools/pages. If npm fails, nothing is checked; with CI=true that is an error.
set -eu
cd "$(dirname "$0")/.."
. tools/certificates.sh
. tools/environment.sh
. tools/node.sh

ESLINT=9.39.5
TYPESCRIPT=5.9.3
REACT_TYPES=19.3.0

fetched=.tools/pages/node_modules

has() { grep -qs "\"version\" *: *\"$2\"" "$fetched/$1/package.json"; }

if ! has eslint "$ESLINT" || ! has typescript "$TYPESCRIPT" || ! has @types/react "$REACT_TYPES"; then
    wanted="eslint@$ESLINT typescript@$TYPESCRIPT @types/react@$REACT_TYPES"
    echo "pages: downloading $wanted with npm into .tools/pages"
    mkdir -p .tools/pages
    # shellcheck disable=SC2086
    npm install --prefix .tools/pages --no-save --no-package-lock --no-audit --no-fund --silent $wanted || {
        echo "pages: npm could not download $wanted: check the network and npm's registry setting; the pages' JavaScript is not checked" >&2
        [ "${CI:-}" != true ]
        exit
    }
fi

node "$fetched/eslint/bin/eslint.js" --config tools/pages/eslint.config.mjs airflow_provider_coordination/ui/static tests/ui tools/chakra
PYTHONPATH=. python tools/page_types.py .tools/pages/api.d.ts
node "$fetched/typescript/bin/tsc" --project tools/pages
