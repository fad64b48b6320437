import { defineConfig, type Plugin } from "vite";

/** Airflow's UI shares these with its plugins, as global variables; everything else is bundled. */
const SHARED: Record<string, string> = {
  react: "React",
  "react-dom": "ReactDOM",
  "react/jsx-runtime": "ReactJSXRuntime",
  "react-router-dom": "ReactRouterDOM",
};

/** Functions of Chakra UI that return their argument: with them, what the theme does not use is left out. */
const PURE = [
  "createAnatomy",
  "createIcon",
  "defineConfig",
  "defineRecipe",
  "defineSlotRecipe",
  "defineStyle",
  "defineTokens",
];

/** Takes the shared packages from Airflow. An ES module in several files has no other way to name a global variable. */
const shared: Plugin = {
  name: "shared",
  enforce: "pre",
  resolveId: (source) => (source in SHARED ? `\0shared:${source}` : undefined),
  load: (id) => (id.startsWith("\0shared:") ? `module.exports = globalThis.${SHARED[id.slice(8)]};` : undefined),
};

export default defineConfig({
  plugins: [shared],
  build: {
    target: "es2022",
    outDir: "../airflow_provider_coordination/ui/static",
    emptyOutDir: true,
    // It would add elements to Airflow's page. The page that is open loads early without it.
    modulePreload: false,
    license: { fileName: "licenses.txt" },
    rolldownOptions: {
      input: "src/main.tsx",
      treeshake: {
        manualPureFunctions: PURE,
        // Those that `shared.ts` imports stay in the first file.
        moduleSideEffects: [{ test: /pages.src/, sideEffects: true }],
      },
      output: {
        entryFileNames: "coordination.js",
        chunkFileNames: "[name]-[hash].js",
      },
    },
  },
});
