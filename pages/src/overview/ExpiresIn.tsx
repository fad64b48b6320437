import { useNow } from "../format/clock";
import { duration, secondsUntil } from "../format/time";

export function ExpiresIn({ instant }: { instant: string | null }) {
  const now = useNow();
  const left = secondsUntil(instant, now);
  return left > 0 ? `the next expires in ${duration(left, { short: true })}` : "the next one is overdue";
}
