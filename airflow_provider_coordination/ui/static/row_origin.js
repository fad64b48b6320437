/** The origin of a row: who enters its batch, or opens a URL with it, sees its shard, job, log and sinks. */

import { request } from "./api.js";
import { C, h, useEffect, useState } from "./host.js";
import { useAction } from "./action_widgets.js";
import { countText, plural } from "./text.js";
import { sourceApi, withParameters } from "./urls.js";
import { Warning } from "./warning.js";
import { FactList, Instant, Owner, PageLink, Section } from "./widgets.js";

/**
 * The section: the fields, and the origin of the batch that the URL names.
 *
 * @param {{place: Place, parameters: URLSearchParams, change: Change, search: string}} props
 */
export function RowOrigin({ place, parameters, change, search }) {
  const [batch, position] = [parameters.get("batch") ?? "", parameters.get("position") ?? ""];
  const [typed, setTyped] = useState({ batch, position });
  const { run, isBusy, problem } = useAction();
  const [facts, setFacts] = useState(/** @type {Api.TraceFacts|null} */ (null));
  const query = batch && new URLSearchParams({ batch, ...(position && { position }) }).toString();
  useEffect(() => {
    const controller = new AbortController();
    const load = async () => {
      const found = await request(sourceApi(place.connection, place.source, `supervisor/trace?${query}`), controller);
      if (!controller.signal.aborted) setFacts(found);
    };
    setFacts(null);
    if (query) run(load);
    return () => controller.abort();
  }, [place.connection, place.source, query]);
  return h(
    Section,
    { title: "Origin of a row" },
    h(
      C.Flex,
      {
        as: "form",
        gap: 2,
        wrap: "wrap",
        mb: 3,
        onSubmit: (/** @type {ReactFormEvent} */ event) => {
          event.preventDefault();
          change({ batch: typed.batch.trim(), position: typed.position.trim() }, { keep: true });
        },
      },
      field("_batch_id", typed.batch, (text) => setTyped({ ...typed, batch: text })),
      field("Position (optional)", typed.position, (text) => setTyped({ ...typed, position: text })),
      h(C.Button, { type: "submit", size: "sm", variant: "outline", loading: isBusy, disabled: typed.batch.trim() === "" }, "Show"),
    ),
    query && problem !== null && h(Warning, { level: "warning" }, problem.message),
    facts !== null && h(FactList, { facts: factsOf(facts, search) }),
  );
}

/**
 * @param {string} label
 * @param {string} value
 * @param {(text: string) => void} onChange
 */
function field(label, value, onChange) {
  return h(C.Input, {
    size: "sm",
    w: { base: "full", sm: "320px" },
    fontFamily: "mono",
    spellCheck: false,
    dir: "ltr",
    "aria-label": label,
    placeholder: label,
    value,
    onChange: (event) => onChange(event.target.value),
  });
}

/**
 * @param {Api.TraceFacts} facts
 * @param {string} search
 * @returns {[string, Content][]}
 */
function factsOf({ batch, owner, is_pending, sinks }, search) {
  const leftOut = Object.entries(batch.left_out).map(([stage, count]) => `, ${countText(count)} left out (${stage})`);
  return [
    ["Partition", h(PageLink, { to: { search: withParameters(search, { partition: batch.partition_key }) } }, batch.partition_key)],
    ["Range", `after ${batch.start || "the start"} up to ${batch.end}`],
    ["Records", `${countText(batch.records)}${leftOut.join("")}`],
    ["First arrival", h(Instant, { instant: batch.origin.first_arrival })],
    ["Last arrival", h(Instant, { instant: batch.origin.last_arrival })],
    ["Recorded", h(Instant, { instant: batch.landed_at })],
    ["Job, with its log", h(Owner, { owner, withHost: true })],
    ...sinks.map(({ sink, state, rows, location }) => {
      const counted = rows === null ? "" : `, ${plural(rows, "row")}`;
      return /** @type {[string, Content]} */ ([`Sink ${sink}`, `${state}${counted} in ${location}`]);
    }),
    ...(is_pending ? [/** @type {[string, Content]} */ (["Store", "Not every sink has acknowledged the batch yet."])] : []),
  ];
}
