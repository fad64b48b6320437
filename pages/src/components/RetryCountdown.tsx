import { useNow } from "../format/clock";
import { duration } from "../format/time";

export function RetryCountdown({ nextAt }: { nextAt: number | null }) {
  useNow(); // it counts down
  const left = nextAt === null ? 0 : (nextAt - Date.now()) / 1000;
  return left > 0.5 ? `Retrying in ${duration(Math.ceil(left))}.` : "Retrying now.";
}
