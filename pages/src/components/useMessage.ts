/** Short messages about what was done, which disappear after some seconds. The root of the pages shows them. */

import { createContext, useContext } from "react";

export const MessageContext = createContext<(text: string) => void>(() => undefined);

/** Return the function that shows a message. */
export function useMessage(): (text: string) => void {
  return useContext(MessageContext);
}
