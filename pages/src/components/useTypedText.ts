/** Typed text that the URL keeps: it is written there after a pause, and read from there when it changes. */

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
  const latest = useRef(send);
  latest.current = send;
  useEffect(() => {
    if (initial === sent.current) return;
    sent.current = initial;
    setText(initial);
  }, [initial]);
  useEffect(() => {
    if (text === sent.current) return undefined;
    const timer = setTimeout(() => {
      sent.current = text;
      latest.current(text);
    }, PAUSE_MILLISECONDS);
    return () => clearTimeout(timer);
  }, [text]);
  return [text, setText];
}
