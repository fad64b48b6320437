import { defineConfig, esmExternalRequirePlugin } from "vite";

/** Airflow's UI shares these with its plugins; everything else is bundled. */
const SHARED = {
  react: "React",
  "react-dom": "ReactDOM",
  "react/jsx-runtime": "ReactJSXRuntime",
  "react-router-dom": "ReactRouterDOM",
};

export default defineConfig({
  define: { "process.env.NODE_ENV": JSON.stringify("production") },
  build: {
    target: "es2022",
    outDir: "../airflow_provider_coordination/ui/static",
    emptyOutDir: true,
    license: { fileName: "licenses.txt" },
    lib: { entry: "src/main.tsx", name: "AirflowPlugin", formats: ["umd"], fileName: () => "coordination.js" },
    rolldownOptions: {
      // Packages in CommonJS require React; a browser has no `require`.
      plugins: [esmExternalRequirePlugin({ external: Object.keys(SHARED) })],
      output: { globals: SHARED },
    },
  },
});
