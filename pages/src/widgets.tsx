/** The small components of all pages: state chips, keys, owners, instants, statistics, copy buttons, links. */

import {
  Badge,
  Box,
  Flex,
  Grid,
  Heading,
  IconButton,
  Link,
  Span,
  Text,
  VisuallyHidden,
  chakra,
} from "@chakra-ui/react";
import { useEffect, useState } from "react";
import { Link as RouterLink, type To } from "react-router-dom";

import { addressOf } from "./api";
import { useNow, useZone } from "./clock";
import { Icon } from "./icons";
import { fillOf, STATES, stateOf } from "./states";
import { endOf, ownerLabel } from "./text";
import { formatInstant, relative } from "./time";
import { taskPath } from "./urls";
import type { Owner as ApiOwner } from "./schema";
import type { Content, Styles, State } from "./types";

/** Styles of the rows of long tables: plain styles cost less than those of the theme. */
const DOT = { display: "inline-block", borderRadius: "50%", flexShrink: 0 };
const HEAD = { overflow: "hidden", textOverflow: "ellipsis", whiteSpace: "pre", minWidth: 0 };
const TAIL = { flexShrink: 0, whiteSpace: "pre" };

/** The label of a state on its colour. */
export function Chip({ state, states = STATES, ...rest }: { state: string; states?: Record<string, State> } & Styles) {
  const { label, palette, meaning } = stateOf(state, states);
  return (
    <Badge colorPalette={palette} variant="subtle" title={meaning} flexShrink={0} data-state={state} {...rest}>
      <Dot palette={palette} />
      {label}
    </Badge>
  );
}

/** A spot of colour. */
export function Dot({ palette, size = "8px" }: { palette: string; size?: string }) {
  const style = { ...DOT, width: size, height: size, background: fillOf(palette) };
  return <span style={style} />;
}

/** A text that is shortened in its middle if there is no room. Copying gives the whole text. */
export function Shortened({ text, tail = 14, ...rest }: { text: string; tail?: number } & Styles) {
  const cut = endOf(text, tail);
  return (
    <Box as="span" display="inline-flex" minW={0} maxW="full" title={text} dir="ltr" {...rest}>
      <span style={HEAD}>{text.slice(0, cut)}</span>
      {cut < text.length && <span style={TAIL}>{text.slice(cut)}</span>}
    </Box>
  );
}

/** A link to a page of Airflow or of this plugin. */
export function PageLink({ to, children, ...rest }: { to: To; children?: Content } & Styles) {
  return (
    <Link asChild color="blue.fg" {...rest}>
      <RouterLink to={to}>{children}</RouterLink>
    </Link>
  );
}

/**
 * A link to the place in the manual that says what to do; it opens in a new tab.
 *
 * @param props `page#anchor`, or a topic that the API knows
 */
export function ManualLink({ manual, topic, ...rest }: { manual?: string; topic?: string } & Styles) {
  const path = manual === undefined ? `coordination/manual?topic=${topic}` : `coordination/manual/${manual}`;
  return (
    <Link
      href={addressOf(path)}
      target="_blank"
      rel="noopener noreferrer"
      color="inherit"
      textDecoration="underline"
      fontSize="xs"
      flexShrink={0}
      whiteSpace="nowrap"
      data-manual={manual ?? topic}
      {...rest}
    >
      What to do
      <VisuallyHidden>{" (opens the manual in a new tab)"}</VisuallyHidden>
      <Icon name="link" size={3} />
    </Link>
  );
}

/** The owner of a lease: a link to its task try and log, if it is a task. */
export function Owner({ owner, withHost = false, ...rest }: { owner: ApiOwner | null; withHost?: boolean } & Styles) {
  if (!owner)
    return (
      <Text as="span" color="fg.muted" {...rest}>
        –
      </Text>
    );
  const path = taskPath(owner);
  const label = ownerLabel(owner);
  const shown = <Shortened text={label} title={owner.name} tail={8} {...rest} />;
  const name =
    path === null ? (
      shown
    ) : (
      <PageLink to={path} title={owner.name} minW={0} aria-label={`${label}: log of ${owner.name}`}>
        {shown}
      </PageLink>
    );
  if (!withHost || !owner.host) return name;
  return (
    <Box minW={0}>
      <Box display="flex" minW={0}>
        {name}
      </Box>
      <Text color="fg.muted" fontSize="xs" truncate title={`${owner.dag_id} on ${owner.host}`}>
        {`${owner.dag_id} · ${owner.host}`}
      </Text>
    </Box>
  );
}

/** An instant relative to now, which is updated each second. */
export function RelativeTime({ instant, ...rest }: { instant: string | null } & Styles) {
  const now = useNow();
  const zone = useZone();
  if (!instant)
    return (
      <Text as="span" color="fg.muted" {...rest}>
        –
      </Text>
    );
  return (
    <chakra.time dateTime={instant} title={`${formatInstant(instant, zone)} (${zone})`} whiteSpace="nowrap" {...rest}>
      {relative(instant, now)}
    </chakra.time>
  );
}

/** An instant in the selected time zone, and its age. */
export function Instant({ instant, withAge = true, ...rest }: { instant: string | null; withAge?: boolean } & Styles) {
  const now = useNow();
  const zone = useZone();
  if (!instant)
    return (
      <Text as="span" color="fg.muted" {...rest}>
        –
      </Text>
    );
  return (
    <chakra.time dateTime={instant} title={`${instant} (UTC)`} {...rest}>
      <Span whiteSpace="nowrap">{formatInstant(instant, zone)}</Span>
      {withAge && (
        <Span color="fg.muted" whiteSpace="nowrap">
          {` ${relative(instant, now)}`}
        </Span>
      )}
    </chakra.time>
  );
}

/** A button that copies a text. */
export function CopyButton({ text, label, ...rest }: { text: string; label: string } & Styles) {
  const [copied, setCopied] = useState<string | null>(null);
  useEffect(() => {
    if (copied === null) return undefined;
    const timer = setTimeout(() => setCopied(null), 2000);
    return () => clearTimeout(timer);
  }, [copied]);
  return (
    <>
      <IconButton
        size="2xs"
        variant="ghost"
        aria-label={label}
        title={copied ?? label}
        onClick={async (event) => {
          event.stopPropagation();
          setCopied((await copy(text)) ? "Copied" : "The browser does not allow copying");
        }}
        {...rest}
      >
        <Icon name={copied === "Copied" ? "check" : "copy"} size={3.5} />
      </IconButton>
      <VisuallyHidden role="status">{copied ?? ""}</VisuallyHidden>
    </>
  );
}

async function copy(text: string) {
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
    (focused as HTMLElement | null)?.focus();
    return worked;
  }
}

/** A statistic with its name. */
export function Statistic({
  name,
  children,
  note,
  ...rest
}: { name: string; children?: Content; note?: Content } & Styles) {
  return (
    <Box minW={0} {...rest}>
      <Text as="dt" fontSize="xs" color="fg.muted" whiteSpace="nowrap">
        {name}
      </Text>
      <Text as="dd" fontSize="md" fontWeight="semibold" fontVariantNumeric="tabular-nums" whiteSpace="nowrap">
        {children}
        {note && (
          <Span color="fg.muted" fontWeight="normal" fontSize="xs">
            {` ${note}`}
          </Span>
        )}
      </Text>
    </Box>
  );
}

/** A part of a page with a heading. */
export function Section({
  title,
  aside,
  children,
  ...rest
}: { title: string; aside?: Content; children?: Content } & Styles) {
  return (
    <Box as="section" aria-label={title} {...rest}>
      <Flex align="center" justify="space-between" gap={2} mb={2} minH={6} wrap="wrap">
        <Heading as="h3" size="sm">
          {title}
        </Heading>
        {aside}
      </Flex>
      {children}
    </Box>
  );
}

/** A list of names and values, in two columns if there is room. */
export function FactList({ facts }: { facts: (false | null | "" | [string, Content])[] }) {
  return (
    <Grid
      as="dl"
      templateColumns={{ base: "1fr", sm: "minmax(110px, min(30%, 190px)) 1fr" }}
      columnGap={4}
      rowGap={{ base: 0, sm: 1.5 }}
      fontSize="sm"
      m={0}
    >
      {facts
        .filter((fact) => fact !== null && fact !== false && fact !== "")
        .flatMap(([name, value]) => [
          <Text as="dt" key={`${name}?`} color="fg.muted">
            {name}
          </Text>,
          <Box as="dd" key={name} minW={0} m={0} mb={{ base: 2, sm: 0 }} overflowWrap="anywhere">
            {value}
          </Box>,
        ])}
    </Grid>
  );
}
