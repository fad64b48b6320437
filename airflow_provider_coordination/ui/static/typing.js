/** Text that somebody types and that the address keeps: sent when they pause, and taken from there when it changes. */

import { useEffect, useRef, useState } from "./host.js";

const PAUSE_MILLISECONDS = 250;

/**
 * Return the text as it is typed, and what sets it. The address follows a moment later, as Airflow's router would
 * otherwise take characters back from those who type fast.
 *
 * @param {string} given what the address says
 * @param {(text: string) => void} send puts it into the address; only its latest form is called
 * @returns {[string, (text: string) => void]} the text, and what sets it
 */
export function useTyped(given, send) {
  const [text, setText] = useState(given);
  const sent = useRef(given);
  const latest = useRef(send);
  latest.current = send;
  useEffect(() => {
    if (given === sent.current) return;
    sent.current = given;
    setText(given);
  }, [given]);
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
