/** How the modules hang together. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const FOLDER = new URL("../../airflow_provider_coordination/ui/static/", import.meta.url);
const modules = readdirSync(FOLDER).filter((name) => name.endsWith(".js"));
const textOf = (name) => readFileSync(new URL(name, FOLDER), "utf8");

test("the first module names all others, so that a browser asks for all at once", () => {
  const named = [...textOf("coordination.js").matchAll(/^import (?:.* from )?"\.\/(\w+\.js)";$/gm)].map(
    (match) => match[1],
  );
  assert.deepEqual(named.toSorted(), modules.filter((name) => name !== "coordination.js").toSorted());
});

test("text is never put into a page other than as text, and nothing is taken from elsewhere", () => {
  const OWN_CHAKRA = 'import(new URL("./vendor/chakra.js", import.meta.url).href)';
  assert.equal(textOf("host.js").split(OWN_CHAKRA).length, 2);
  for (const name of modules) {
    const text = name === "host.js" ? textOf(name).replace(OWN_CHAKRA, "") : textOf(name);
    const found = text.match(
      /[iI]nnerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\bimport\(/,
    );
    assert.equal(found?.[0], undefined, name);
    for (const [, from] of text.matchAll(/^(?:import|\}) .*"(.*)";$/gm)) assert.match(from, /^\.\/\w+\.js$/, name);
  }
});
