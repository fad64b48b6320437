/** The sources of a connection, those first that need an operator. */

import { Grid } from "@chakra-ui/react";

import type { SourceCard } from "../api/schema";
import { EmptyState } from "../components/EmptyState";
import { byUrgency } from "../states";
import { useStillOrder } from "../table/useStillOrder";
import { Card } from "./Card";
import { SourcesTable } from "./SourcesTable";
import type { OverviewChoices } from "./choices";

export function Sources({
  connection,
  cards,
  search,
  choices,
}: {
  connection: string;
  cards: SourceCard[];
  search: string;
  choices: OverviewChoices;
}) {
  if (cards.length === 0) {
    return (
      <EmptyState
        title="No sources yet"
        text="A source appears here once its DAG has created the first partitions. Start a run of the DAG."
        icon="tree"
      />
    );
  }
  const found = byUrgency(cards.filter((card) => card.source.toLowerCase().includes(search.toLowerCase())));
  if (found.length === 0)
    return <EmptyState title="No source matches" text={`No source name contains “${search}”.`} kind="empty" />;
  return choices.view === "table" ? (
    <SourcesTable connection={connection} cards={found} choices={choices} />
  ) : (
    <Cards cards={found} />
  );
}

/** The cards of sources, in their order. */
function Cards({ cards }: { cards: SourceCard[] }) {
  const { things, pointing } = useStillOrder(cards, (card) => card.source);
  return (
    <Grid templateColumns="repeat(auto-fill, minmax(min(100%, 340px), 1fr))" gap={4} {...pointing}>
      {things.map((card) => (
        <Card key={card.source} card={card} />
      ))}
    </Grid>
  );
}
