/** Specs in the UI: the differences of two versions, field by field, and the input of the forms. */

import type { JsonObject } from "../types";

/** The template for the first spec of a source. */
export const NEW_SPEC = {
  version: 1,
  source: "",
  reads: { kinesis: { streams: "" } },
  writes: [{ parquet: { path: "" } }],
  supervise: { task_count: 1 },
};

/**
 * Return the fields in which two specs differ, in the order in which the later one has them.
 *
 * @param before a JSON value; null or undefined if there is none
 * @returns values as JSON; null if there is none
 */
export function changesBetween(
  before: unknown,
  after: unknown,
): { path: string; before: string | null; after: string | null }[] {
  const [old, now] = [fieldsOf(before), fieldsOf(after)];
  return [...new Set([...now.keys(), ...old.keys()])]
    .filter((path) => old.get(path) !== now.get(path))
    .map((path) => ({ path, before: old.get(path) ?? null, after: now.get(path) ?? null }));
}

function fieldsOf(value: unknown, path = "", found = new Map<string, string>()) {
  if (value === null || value === undefined) {
    if (path !== "" && value === null) found.set(path, "null");
    return found;
  }
  const entries = Array.isArray(value)
    ? value.map((each, index) => [`${path}[${index}]`, each] as [string, unknown])
    : typeof value === "object"
      ? Object.entries(value).map(([name, each]) => [path ? `${path}.${name}` : name, each] as [string, unknown])
      : null;
  if (entries === null || entries.length === 0) found.set(path, JSON.stringify(value));
  else entries.forEach(([name, each]) => fieldsOf(each, name, found));
  return found;
}

/** Return the positions in a text with one line for each partition: its key and its position. */
export function positionsOf(text: string): Record<string, string> {
  const lines = text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
  return Object.fromEntries(
    lines.map((line) => {
      const [, name, position] = /^(\S+?)\s*(?:[\s=])\s*(\S+)$/.exec(line) ?? [];
      if (name === undefined)
        throw new Error(
          `Line “${line.slice(0, 60)}” is not a partition and a position; write both, separated by a space`,
        );
      return [name, position];
    }),
  );
}

/**
 * Return the spec in a text.
 *
 * @param text JSON
 */
export function specOf(text: string): JsonObject {
  let spec;
  try {
    spec = JSON.parse(text);
  } catch (error) {
    throw new Error(`The spec is not valid JSON: ${error instanceof Error ? error.message : error}`, { cause: error });
  }
  if (spec === null || typeof spec !== "object" || Array.isArray(spec))
    throw new Error("The spec is not a JSON object; write an object with the fields of a spec");
  return spec;
}

/** Return the source that a spec names. */
export function sourceOf({ source }: JsonObject): string {
  if (typeof source !== "string" || source.trim() === "")
    throw new Error("The spec has no source; set “source” to its name");
  return source;
}
