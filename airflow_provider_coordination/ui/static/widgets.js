/** The small components of all pages: state chips, keys, owners, instants, statistics, copy buttons, links. */

import { C, Fragment, h, RouterLink, useEffect, useState } from "./host.js";
import { addressOf } from "./api.js";
import { Icon } from "./icons.js";
import { taskPath } from "./urls.js";
import { fillOf, STATES, stateOf } from "./states.js";
import { endOf, ownerLabel } from "./text.js";
import { useNow, useZone } from "./clock.js";
import { formatInstant, relative } from "./time.js";

/** Styles of the rows of long tables: plain styles cost less than those of the theme. */
const DOT = { display: "inline-block", borderRadius: "50%", flexShrink: 0 };
const HEAD = { overflow: "hidden", textOverflow: "ellipsis", whiteSpace: "pre", minWidth: 0 };
const TAIL = { flexShrink: 0, whiteSpace: "pre" };

/**
 * The label of a state on its colour.
 *
 * @param {{state: string, states?: Record<string, State>} & Styles} props
 */
export function Chip({ state, states = STATES, ...rest }) {
  const { label, palette, meaning } = stateOf(state, states);
  return h(
    C.Badge,
    { colorPalette: palette, variant: "subtle", title: meaning, flexShrink: 0, "data-state": state, ...rest },
    h(Dot, { palette }),
    label,
  );
}

/**
 * A spot of colour.
 *
 * @param {{palette: string, size?: string}} props
 */
export function Dot({ palette, size = "8px" }) {
  const style = { ...DOT, width: size, height: size, background: fillOf(palette) };
  return h("span", { style });
}

/**
 * A text that is shortened in its middle if there is no room. Copying gives the whole text.
 *
 * @param {{text: string, tail?: number} & Styles} props
 */
export function Shortened({ text, tail = 14, ...rest }) {
  const cut = endOf(text, tail);
  return h(
    C.Box,
    { as: "span", display: "inline-flex", minW: 0, maxW: "full", title: text, dir: "ltr", ...rest },
    h("span", { style: HEAD }, text.slice(0, cut)),
    cut < text.length && h("span", { style: TAIL }, text.slice(cut)),
  );
}

/**
 * A link to a page of Airflow or of this plugin.
 *
 * @param {{to: To, children?: Content} & Styles} props
 */
export function PageLink({ to, children, ...rest }) {
  return h(C.Link, { asChild: true, color: "blue.fg", ...rest }, h(RouterLink, { to }, children));
}

/**
 * A link to the place in the manual that says what to do; it opens in a new tab.
 *
 * @param {{manual?: string, topic?: string} & Styles} props `page#anchor`, or a topic that the API knows
 */
export function ManualLink({ manual, topic, ...rest }) {
  const path = manual === undefined ? `coordination/manual?topic=${topic}` : `coordination/manual/${manual}`;
  return h(
    C.Link,
    {
      href: addressOf(path),
      target: "_blank",
      rel: "noopener noreferrer",
      color: "inherit",
      textDecoration: "underline",
      fontSize: "xs",
      flexShrink: 0,
      whiteSpace: "nowrap",
      "data-manual": manual ?? topic,
      ...rest,
    },
    "What to do",
    h(C.VisuallyHidden, null, " (opens the manual in a new tab)"),
    h(Icon, { name: "link", size: 3 }),
  );
}

/**
 * The owner of a lease: a link to its task try and log, if it is a task.
 *
 * @param {{owner: Api.Owner|null, withHost?: boolean} & Styles} props
 */
export function Owner({ owner, withHost = false, ...rest }) {
  if (!owner) return h(C.Text, { as: "span", color: "fg.muted", ...rest }, "–");
  const path = taskPath(owner);
  const label = ownerLabel(owner);
  const shown = h(Shortened, { text: label, title: owner.name, tail: 8, ...rest });
  const name =
    path === null
      ? shown
      : h(PageLink, { to: path, title: owner.name, minW: 0, "aria-label": `${label}: log of ${owner.name}` }, shown);
  if (!withHost || !owner.host) return name;
  return h(
    C.Box,
    { minW: 0 },
    h(C.Box, { display: "flex", minW: 0 }, name),
    h(
      C.Text,
      { color: "fg.muted", fontSize: "xs", truncate: true, title: `${owner.dag_id} on ${owner.host}` },
      `${owner.dag_id} · ${owner.host}`,
    ),
  );
}

/**
 * An instant relative to now, which is updated each second.
 *
 * @param {{instant: string|null} & Styles} props
 */
export function RelativeTime({ instant, ...rest }) {
  const now = useNow();
  const zone = useZone();
  if (!instant) return h(C.Text, { as: "span", color: "fg.muted", ...rest }, "–");
  return h(
    C.Text,
    {
      as: "time",
      dateTime: instant,
      title: `${formatInstant(instant, zone)} (${zone})`,
      whiteSpace: "nowrap",
      ...rest,
    },
    relative(instant, now),
  );
}

/**
 * An instant in the selected time zone, and its age.
 *
 * @param {{instant: string|null, withAge?: boolean} & Styles} props
 */
export function Instant({ instant, withAge = true, ...rest }) {
  const now = useNow();
  const zone = useZone();
  if (!instant) return h(C.Text, { as: "span", color: "fg.muted", ...rest }, "–");
  return h(
    C.Text,
    { as: "time", dateTime: instant, title: `${instant} (UTC)`, ...rest },
    h(C.Span, { whiteSpace: "nowrap" }, formatInstant(instant, zone)),
    withAge && h(C.Span, { color: "fg.muted", whiteSpace: "nowrap" }, ` ${relative(instant, now)}`),
  );
}

/**
 * A button that copies a text.
 *
 * @param {{text: string, label: string} & Styles} props
 */
export function CopyButton({ text, label, ...rest }) {
  const [copied, setCopied] = useState(/** @type {string|null} */ (null));
  useEffect(() => {
    if (copied === null) return undefined;
    const timer = setTimeout(() => setCopied(null), 2000);
    return () => clearTimeout(timer);
  }, [copied]);
  return h(
    Fragment,
    null,
    h(
      C.IconButton,
      {
        size: "2xs",
        variant: "ghost",
        "aria-label": label,
        title: copied ?? label,
        onClick: async (event) => {
          event.stopPropagation();
          setCopied((await copy(text)) ? "Copied" : "The browser does not allow copying");
        },
        ...rest,
      },
      h(Icon, { name: copied === "Copied" ? "check" : "copy", size: 3.5 }),
    ),
    h(C.VisuallyHidden, { role: "status" }, copied ?? ""),
  );
}

/** @param {string} text */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Browsers have no clipboard without TLS; this older way works there.
    const area = document.createElement("textarea");
    area.value = text;
    area.style.position = "fixed";
    area.style.opacity = "0";
    const dialog = document.activeElement?.closest("[role=dialog],[role=alertdialog]") ?? document.body;
    const focused = document.activeElement;
    dialog.append(area);
    area.select();
    const worked = document.execCommand("copy");
    area.remove();
    /** @type {HTMLElement|null} */ (focused)?.focus();
    return worked;
  }
}

/**
 * A statistic with its name.
 *
 * @param {{name: string, children?: Content, note?: Content} & Styles} props
 */
export function Statistic({ name, children, note, ...rest }) {
  return h(
    C.Box,
    { minW: 0, ...rest },
    h(C.Text, { as: "dt", fontSize: "xs", color: "fg.muted", whiteSpace: "nowrap" }, name),
    h(
      C.Text,
      { as: "dd", fontSize: "md", fontWeight: "semibold", fontVariantNumeric: "tabular-nums", whiteSpace: "nowrap" },
      children,
      note && h(C.Span, { color: "fg.muted", fontWeight: "normal", fontSize: "xs" }, ` ${note}`),
    ),
  );
}

/**
 * A part of a page with a heading.
 *
 * @param {{title: string, aside?: Content, children?: Content} & Styles} props
 */
export function Section({ title, aside, children, ...rest }) {
  return h(
    C.Box,
    { as: "section", "aria-label": title, ...rest },
    h(
      C.Flex,
      { align: "center", justify: "space-between", gap: 2, mb: 2, minH: 6, wrap: "wrap" },
      h(C.Heading, { as: "h3", size: "sm" }, title),
      aside,
    ),
    children,
  );
}

/**
 * A list of names and values, in two columns if there is room.
 *
 * @param {{facts: (false|null|""|[string, Content])[]}} props
 */
export function FactList({ facts }) {
  return h(
    C.Grid,
    {
      as: "dl",
      templateColumns: { base: "1fr", sm: "minmax(110px, min(30%, 190px)) 1fr" },
      columnGap: 4,
      rowGap: { base: 0, sm: 1.5 },
      fontSize: "sm",
      m: 0,
    },
    ...facts
      .filter((fact) => fact !== null && fact !== false && fact !== "")
      .flatMap(([name, value]) => [
        h(C.Text, { as: "dt", key: `${name}?`, color: "fg.muted" }, name),
        h(C.Box, { as: "dd", key: name, minW: 0, m: 0, mb: { base: 2, sm: 0 }, overflowWrap: "anywhere" }, value),
      ]),
  );
}
