import { useState } from "react";

/**
 * Keep things in their places while the user points at one of them: else the click would hit another one.
 *
 * @param things in their order
 * @param keyOf identifies a thing
 * @param order names their order: another one applies at once
 * @returns the things, new ones last, and the handlers of the element around them
 */
export function useStillOrder<Thing>(things: Thing[], keyOf: (thing: Thing) => string, order = "") {
  const [held, setHeld] = useState<{ keys: string[]; order: string } | null>(null);
  const pointing = {
    onPointerEnter: () => setHeld({ keys: things.map(keyOf), order }),
    onPointerLeave: () => setHeld(null),
  };
  if (held === null || held.order !== order) return { things, pointing };
  return { things: inPlaces(things, keyOf, held.keys), pointing };
}

/**
 * Return things in the order in which they were shown, new ones last.
 *
 * @param shown the keys of the things that were shown, in order
 */
export function inPlaces<Thing>(things: Thing[], keyOf: (thing: Thing) => string, shown: string[]) {
  const places = new Map(shown.map((key, place) => [key, place]));
  const placeOf = (thing: Thing) => places.get(keyOf(thing)) ?? shown.length;
  return [...things].sort((a, b) => placeOf(a) - placeOf(b));
}
