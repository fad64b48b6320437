import { fillOf } from "../states";
import type { Line } from "../types";

/** A short sample of a line. Its dashes distinguish it for users who do not see its colour. */
export function Sample({ line }: { line: Line }) {
  return (
    <svg width={22} height={8} aria-hidden>
      <path d="M0 4H22" fill="none" stroke={fillOf(line.palette)} strokeWidth={2} strokeDasharray={line.dashes} />
    </svg>
  );
}
