import type { Content, Refreshed } from "../types";
import { Loading } from "./Loading";
import { ProblemButton } from "./ProblemButton";
import { ProblemPage } from "./ProblemPage";
import { ProblemPart } from "./ProblemPart";
import { RetryCountdown } from "./RetryCountdown";
import { StaleNote } from "./StaleNote";
import { descriptionOf } from "./problemText";

/**
 * Show the content of a live response, or a placeholder for it.
 *
 * @param props
 *     `isPart` if the page shows more than this
 */
export function LiveContent<Body>({
  live,
  what,
  connection,
  rows,
  isPart = false,
  children,
}: {
  live: Refreshed<Body>;
  what: string;
  connection?: string;
  rows?: number;
  isPart?: boolean;
  children: (response: Body) => Content;
}) {
  const { response, problem, nextAt, refresh } = live;
  if (response !== null && problem?.kind !== "forbidden") {
    return [
      children(response),
      problem && <StaleNote key="stale" problem={problem} connection={connection} nextAt={nextAt} refresh={refresh} />,
    ];
  }
  if (problem !== null && isPart) {
    const words = descriptionOf(problem, connection);
    const text = [words.text, " ", words.isRetried && <RetryCountdown key="again" nextAt={nextAt} />];
    return (
      <ProblemPart {...words} text={text} kind={problem.kind}>
        <ProblemButton problem={problem} refresh={refresh} size="xs" />
      </ProblemPart>
    );
  }
  if (problem !== null)
    return <ProblemPage problem={problem} connection={connection} nextAt={nextAt} refresh={refresh} />;
  return <Loading what={what} rows={rows} />;
}
