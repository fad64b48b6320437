/** Typed text that the URL keeps: it is written there after a pause, and read from there when it changes. */

import { useCallbackRef } from "@chakra-ui/react";
import { useEffect, useRef, useState } from "react";

const PAUSE_MILLISECONDS = 250;

/**
 * Return the text as it is typed, and its setter. The URL follows a moment later: otherwise Airflow's router would undo
 * characters of fast typists.
 *
 * @param initial the text in the URL
 * @param send writes the text to the URL; only the latest function is called
 * @returns the text, and its setter
 */
export function useTypedText(initial: string, send: (text: string) => void): [string, (text: string) => void] {
  const [text, setText] = useState(initial);
  const sent = useRef(initial);
  const sendLatest = useCallbackRef(send);
  useEffect(() => {
    if (initial === sent.current) return;
    sent.current = initial;
    setText(initial);
  }, [initial]);
  useEffect(() => {
    if (text === sent.current) return undefined;
    const timer = setTimeout(() => {
      sent.current = text;
      sendLatest(text);
    }, PAUSE_MILLISECONDS);
    return () => clearTimeout(timer);
  }, [text, sendLatest]);
  return [text, setText];
}
