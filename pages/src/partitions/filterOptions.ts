/** The filters of a source's partitions. The URL keeps them, and the requests to the API contain them. */

export const STATUSES = [
  ["UNASSIGNED", "Waiting"],
  ["ASSIGNED", "Held"],
  ["CLOSED", "Closed"],
  ["COMPLETED", "Completed"],
];
export const FLAGS = [
  ["parked", "Parked", "red"],
  ["expired", "Lease expired", "orange"],
  ["failing", "Failing", "orange"],
];
export const TEXTS = [
  ["search", "Key contains"],
  ["prefix", "Key starts with"],
  ["owner", "Owner contains"],
];

/** The parameters of the URL for filters and order. */
export const PARAMETERS = [
  "status",
  ...FLAGS.map(([name]) => name),
  ...TEXTS.map(([name]) => name),
  "order",
  "descending",
];

/** Return whether a URL contains filters. */
export function isFiltering(parameters: URLSearchParams) {
  return (
    parameters.has("status") ||
    FLAGS.some(([name]) => parameters.get(name) === "true") ||
    TEXTS.some(([name]) => parameters.get(name))
  );
}

/**
 * Return the query of the API for the filters in a URL, without a start position.
 *
 * @param parameters of the page's URL
 */
export function queryOf(parameters: URLSearchParams) {
  const query = new URLSearchParams();
  const statuses = parameters.getAll("status").filter((status) => STATUSES.some(([name]) => name === status));
  statuses.forEach((status) => query.append("status", status));
  for (const [flag] of FLAGS) if (parameters.get(flag) === "true") query.set(flag, "true");
  for (const [name] of TEXTS) if (parameters.get(name)) query.set(name, parameters.get(name) ?? "");
  const order = orderOf(parameters);
  query.set("order", order);
  if (order !== "urgency" && parameters.get("descending") === "true") query.set("descending", "true");
  return query.toString();
}

/**
 * Return the order of the list: by urgency if the URL has none.
 *
 * @param parameters of the page's URL
 */
export function orderOf(parameters: URLSearchParams) {
  const order = parameters.get("order") ?? "";
  return ["key", "priority", "lag"].includes(order) ? order : "urgency";
}
