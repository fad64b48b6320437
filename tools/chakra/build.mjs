/** Bundles `chakra.js`: `node build.mjs FOLDER DIGEST`. React is taken from the globals of Airflow's UI. */

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const GLOBALS = { react: "React", "react-dom": "ReactDOM", "react/jsx-runtime": "ReactJSXRuntime" };

const [folder, digest] = process.argv.slice(2);

const { metafile } = await build({
  entryPoints: ["chakra.js"],
  outfile: join(folder, "chakra.js"),
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
  banner: { js: `/* Chakra UI, bundled from ${digest}; licenses are in LICENSES.txt. */` },
  define: { "process.env.NODE_ENV": '"production"' },
  plugins: [
    {
      name: "host",
      setup({ onResolve, onLoad }) {
        onResolve({ filter: /^react(-dom|\/jsx-runtime)?$/ }, ({ path }) => ({ path, namespace: "host" }));
        onLoad({ filter: /.*/, namespace: "host" }, ({ path }) => ({
          contents: `module.exports = globalThis.${GLOBALS[path]};`,
        }));
      },
    },
  ],
});

/** The names of packages, by the text of their license. */
const licenses = new Map();
for (const path of new Set(
  Object.values(metafile.outputs).flatMap(({ inputs }) =>
    Object.entries(inputs).flatMap(([file, { bytesInOutput }]) =>
      bytesInOutput ? (file.match(/^.*node_modules\/(@[^/]+\/)?[^/]+/)?.[0] ?? []) : [],
    ),
  ),
)) {
  const { name, version, license } = JSON.parse(readFileSync(join(path, "package.json"), "utf8"));
  const file = readdirSync(path).find((each) => /^licen[cs]e/i.test(each));
  const text = file === undefined ? `License: ${license}` : readFileSync(join(path, file), "utf8").trim();
  licenses.set(text, [...(licenses.get(text) ?? []), `${name} ${version}`]);
}
const parts = [...licenses].map(([text, names]) => `${names.toSorted().join("\n")}\n\n${text}\n`);
writeFileSync(join(folder, "LICENSES.txt"), parts.toSorted().join(`\n${"-".repeat(80)}\n\n`));
