import { Grid } from "@chakra-ui/react";
import { useRef, useState } from "react";

import type { SourceCard } from "../api/schema";
import { EmptyState } from "../components/EmptyState";
import { byUrgency, inOrder } from "../states";
import { Card } from "./Card";

export function Cards({ cards, search }: { cards: SourceCard[]; search: string }) {
  const found = cards.filter((card) => card.source.toLowerCase().includes(search.toLowerCase()));
  const shown = useRef<string[]>([]);
  const [isPointed, setPointed] = useState(false);
  // While the user points at a card, no card moves: the click would hit another one.
  if (!isPointed) shown.current = byUrgency(found).map((card) => card.source);
  const sorted = isPointed ? inOrder(found, shown.current) : byUrgency(found);
  if (cards.length === 0) {
    return (
      <EmptyState
        title="No sources yet"
        text="A source appears here after a DAG has created its first partitions. Start a run of its DAG."
        icon="tree"
      />
    );
  }
  if (found.length === 0)
    return <EmptyState title="No source matches" text={`No source name contains “${search}”.`} kind="empty" />;
  return (
    <Grid
      templateColumns="repeat(auto-fill, minmax(min(100%, 340px), 1fr))"
      gap={4}
      onPointerEnter={() => setPointed(true)}
      onPointerLeave={() => setPointed(false)}
    >
      {sorted.map((card) => (
        <Card key={card.source} card={card} />
      ))}
    </Grid>
  );
}
