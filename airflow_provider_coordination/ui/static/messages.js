/** Short messages about what was done, which disappear after some seconds. The root of the pages shows them. */

import { createContext, useContext } from "./host.js";

export const MessageContext = createContext((/** @type {string} */ _text) => {});

/** Return the function that shows a message. @returns {(text: string) => void} */
export function useMessage() {
  return useContext(MessageContext);
}
