/** The origin of a row: who enters its batch, or opens a URL with it, sees its shard, job, log and sinks. */

import { Box, Button, Flex, Input } from "@chakra-ui/react";
import { useEffect, useRef, useState, type FormEvent } from "react";

import { useAction } from "../actions/useAction";
import { request } from "../api/request";
import type { TraceFacts } from "../api/schema";
import { Section } from "../components/Section";
import { Warning } from "../components/Warning";
import type { Change, Place } from "../types";
import { sourceApi } from "../urls";
import { Origin } from "./Origin";

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
  // A link may name another batch than the one that was entered.
  return <OriginOf key={JSON.stringify([place, batch, position])} {...{ place, batch, position, change, search }} />;
}

function OriginOf({
  place,
  batch,
  position,
  change,
  search,
}: {
  place: Place;
  batch: string;
  position: string;
  change: Change;
  search: string;
}) {
  const [typed, setTyped] = useState({ batch, position });
  const { run, isBusy, problem } = useAction();
  const [facts, setFacts] = useState<TraceFacts | null>(null);
  const section = useRef<HTMLElement>(null);
  const query = batch && new URLSearchParams({ batch, ...(position && { position }) }).toString();
  const path = sourceApi(place.connection, place.source, `supervisor/trace?${query}`);
  useEffect(() => {
    if (!query) return undefined;
    const controller = new AbortController();
    void run(async () => {
      const found = await request<TraceFacts>(path, controller);
      if (!controller.signal.aborted) setFacts(found);
    });
    // The section is below others, which a link to a batch is not about.
    section.current?.scrollIntoView({ block: "nearest" });
    return () => controller.abort();
  }, [path, query, run]);
  useEffect(() => {
    if (facts !== null) section.current?.scrollIntoView({ block: "nearest" });
  }, [facts]);
  return (
    <Box ref={section} scrollMarginBlock={4}>
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
        {facts !== null && <Origin facts={facts} search={search} />}
      </Section>
    </Box>
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
