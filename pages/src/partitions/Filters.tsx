import { Box, Button, Flex, Input, NativeSelect, VisuallyHidden } from "@chakra-ui/react";
import { useRef, useState, type MouseEvent } from "react";

import type { SourceCard } from "../api/schema";
import { Icon } from "../components/Icon";
import { useTypedText } from "../components/useTypedText";
import type { Change } from "../types";
import { Toggle } from "./Toggle";
import { FLAGS, isFiltering, PARAMETERS, STATUSES, TEXTS } from "./filterOptions";

/** The filters. The URL keeps their state. */
export function Filters({
  card,
  parameters,
  change,
}: {
  card: SourceCard | null;
  parameters: URLSearchParams;
  change: Change;
}) {
  const active = TEXTS.find(([name]) => parameters.get(name))?.[0];
  const [field, setField] = useState(active ?? "search");
  const [text, setText] = useTypedText(parameters.get(field) ?? "", (typed) => change({ [field]: typed }));
  const input = useRef<HTMLInputElement>(null);

  const clear = (event: MouseEvent<HTMLElement>, names: string[]) => {
    change(Object.fromEntries(names.map((name) => [name, null])));
    // The pressed button disappears with the focus. Keyboard users continue in the search field.
    if (event.detail === 0) input.current?.focus();
  };
  const statuses = parameters.getAll("status");

  const counts: Record<string, number | null | undefined> = {
    ...(card?.counts ?? {}),
    parked: card?.parked,
    failing: card?.failing,
    expired: card?.expired_leases,
  };
  const others = TEXTS.filter(([name]) => name !== field && parameters.get(name));

  const toggleStatus = (status: string) => {
    const next = statuses.includes(status) ? statuses.filter((each) => each !== status) : [...statuses, status];
    change({ status: next });
  };
  return (
    <Flex
      gap={2}
      mb={2}
      // Two lines, or one if everything fits: growing counts must not move the table below.
      wrap={{ base: "wrap", xl: "nowrap" }}
      align="center"
      role="search"
      aria-label="Filter partitions"
      flexShrink={0}
    >
      <Flex gap={1} flex={{ base: "1 1 100%", xl: "0 1 400px" }}>
        <NativeSelect.Root size="sm" w="150px" flexShrink={0}>
          <NativeSelect.Field
            aria-label="Search in"
            value={field}
            onChange={(event) => {
              change({ [field]: null, [event.target.value]: text });
              setField(event.target.value);
            }}
          >
            {TEXTS.map(([name, label]) => (
              <option key={name} value={name}>
                {label}
              </option>
            ))}
          </NativeSelect.Field>
          <NativeSelect.Indicator />
        </NativeSelect.Root>
        <Input
          ref={input}
          size="sm"
          type="search"
          aria-label="Search text"
          placeholder="Search"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      </Flex>
      <Flex
        gap={1.5}
        align="center"
        overflowX="auto"
        flex={{ base: "1 1 100%", xl: "1 1 0" }}
        minW={0}
        p="2px"
        css={{ "& > *": { flexShrink: 0 } }}
      >
        {STATUSES.map(([status, label]) => (
          <Toggle
            key={status}
            name={status}
            label={label}
            count={counts[status]}
            isOn={statuses.includes(status)}
            onClick={() => toggleStatus(status)}
          />
        ))}
        <Box as="span" w="1px" h={5} bg="border.emphasized" aria-hidden />
        {FLAGS.map(([flag, label, palette]) => (
          <Toggle
            key={flag}
            name={flag}
            label={label}
            count={counts[flag]}
            palette={palette}
            isOn={parameters.get(flag) === "true"}
            onClick={() => change({ [flag]: parameters.get(flag) !== "true" })}
          />
        ))}
        {others.map(([name, label]) => (
          <Button
            key={name}
            size="2xs"
            variant="surface"
            title={parameters.get(name) ?? undefined}
            onClick={(event) => clear(event, [name])}
          >
            <VisuallyHidden>{"Remove the filter: "}</VisuallyHidden>
            {`${label}: ${parameters.get(name)?.slice(0, 30)}`}
            <Icon name="close" size={3} />
          </Button>
        ))}
        {isFiltering(parameters) && (
          <Button size="2xs" variant="plain" color="brand.fg" onClick={(event) => clear(event, PARAMETERS)}>
            Clear filters
          </Button>
        )}
      </Flex>
    </Flex>
  );
}
