/** What tells a person what was done, in a line that goes away by itself: what every page lies in provides it. */

import { createContext, useContext } from "./host.js";

export const Telling = createContext((/** @type {string} */ _text) => {});

/** Return what tells a person something. @returns {(text: string) => void} */
export function useTell() {
  return useContext(Telling);
}
