/** The origin of a row: who enters its batch, or opens a URL with it, sees its shard, job, log and sinks. */

import { Button, Flex, Input } from "@chakra-ui/react";
import { useEffect, useState, type FormEvent } from "react";

import { useAction } from "../actions/useAction";
import { request } from "../api/request";
import type { TraceFacts } from "../api/schema";
import { FactList } from "../components/FactList";
import { Instant } from "../components/Instant";
import { Owner } from "../components/Owner";
import { PageLink } from "../components/PageLink";
import { Section } from "../components/Section";
import { Warning } from "../components/Warning";
import { countText, plural } from "../format/text";
import type { Change, Content, Place } from "../types";
import { sourceApi, withParameters } from "../urls";

/** The section: the fields, and the origin of the batch that the URL names. */
export function RowOrigin({
  place,
  parameters,
  change,
  search,
}: {
  place: Place;
  parameters: URLSearchParams;
  change: Change;
  search: string;
}) {
  const [batch, position] = [parameters.get("batch") ?? "", parameters.get("position") ?? ""];
  const [typed, setTyped] = useState({ batch, position });
  const { run, isBusy, problem } = useAction();
  const [facts, setFacts] = useState<TraceFacts | null>(null);
  const query = batch && new URLSearchParams({ batch, ...(position && { position }) }).toString();
  useEffect(() => {
    const controller = new AbortController();
    const load = async () => {
      const found = await request<TraceFacts>(
        sourceApi(place.connection, place.source, `supervisor/trace?${query}`),
        controller,
      );
      if (!controller.signal.aborted) setFacts(found);
    };
    setFacts(null);
    if (query) run(load);
    return () => controller.abort();
  }, [place.connection, place.source, query]);
  return (
    <Section title="Origin of a row">
      <Flex
        as="form"
        gap={2}
        wrap="wrap"
        mb={3}
        onSubmit={(event: FormEvent) => {
          event.preventDefault();
          change({ batch: typed.batch.trim(), position: typed.position.trim() }, { keep: true });
        }}
      >
        {field("_batch_id", typed.batch, (text) => setTyped({ ...typed, batch: text }))}
        {field("Position (optional)", typed.position, (text) => setTyped({ ...typed, position: text }))}
        <Button type="submit" size="sm" variant="outline" loading={isBusy} disabled={typed.batch.trim() === ""}>
          Show
        </Button>
      </Flex>
      {query && problem !== null && <Warning level="warning">{problem.message}</Warning>}
      {facts !== null && <FactList facts={factsOf(facts, search)} />}
    </Section>
  );
}

function field(label: string, value: string, onChange: (text: string) => void) {
  return (
    <Input
      size="sm"
      w={{ base: "full", sm: "320px" }}
      fontFamily="mono"
      spellCheck={false}
      dir="ltr"
      aria-label={label}
      placeholder={label}
      value={value}
      onChange={(event) => onChange(event.target.value)}
    />
  );
}

function factsOf({ batch, owner, is_pending, sinks }: TraceFacts, search: string): [string, Content][] {
  const leftOut = Object.entries(batch.left_out).map(([stage, count]) => `, ${countText(count)} left out (${stage})`);
  return [
    [
      "Partition",
      <PageLink to={{ search: withParameters(search, { partition: batch.partition_key }) }}>
        {batch.partition_key}
      </PageLink>,
    ],
    ["Range", `after ${batch.start || "the start"} up to ${batch.end}`],
    ["Records", `${countText(batch.records)}${leftOut.join("")}`],
    ["First arrival", <Instant instant={batch.origin.first_arrival} />],
    ["Last arrival", <Instant instant={batch.origin.last_arrival} />],
    ["Recorded", <Instant instant={batch.landed_at} />],
    ["Job, with its log", <Owner owner={owner} withHost />],
    ...sinks.map(({ sink, state, rows, location }) => {
      const counted = rows === null ? "" : `, ${plural(rows, "row")}`;
      return [`Sink ${sink}`, `${state}${counted} in ${location}`] as [string, Content];
    }),
    ...(is_pending ? [["Store", "Not every sink has acknowledged the batch yet."] as [string, Content]] : []),
  ];
}
