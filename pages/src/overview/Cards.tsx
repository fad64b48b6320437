import { Grid } from "@chakra-ui/react";

import type { SourceCard } from "../api/schema";
import { useStillOrder } from "../table/useStillOrder";
import { Card } from "./Card";

/** The cards of sources, in their order. */
export function Cards({ cards }: { cards: SourceCard[] }) {
  const { things, pointing } = useStillOrder(cards, (card) => card.source);
  return (
    <Grid templateColumns="repeat(auto-fill, minmax(min(100%, 340px), 1fr))" gap={4} {...pointing}>
      {things.map((card) => (
        <Card key={card.source} card={card} />
      ))}
    </Grid>
  );
}
