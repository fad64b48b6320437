#!/bin/sh
# Fetches mermaid with npm into .tools/mermaid: the site draws the manual's pictures with it. If npm fails, the site
# shows the text of each picture instead.
set -eu
cd "$(dirname "$0")/.."
. tools/certificates.sh
. tools/environment.sh
. tools/node.sh

MERMAID=11.17.2

folder=.tools/mermaid
[ ! -e "$folder/$MERMAID.js" ] || exit 0
echo "docs: downloading mermaid@$MERMAID with npm into $folder"
mkdir -p "$folder"
(cd "$folder" && npm pack "mermaid@$MERMAID" --silent >/dev/null && tar -xzf "mermaid-$MERMAID.tgz" package/dist/mermaid.min.js) || {
    echo "docs: npm could not download mermaid@$MERMAID: the site shows pictures as text" >&2
    exit 0
}
rm -f "$folder"/*.js
mv "$folder/package/dist/mermaid.min.js" "$folder/$MERMAID.js"
rm -rf "$folder/package" "$folder/mermaid-$MERMAID.tgz"
