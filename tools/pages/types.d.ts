/** What the pages' modules share: the shapes of their own values. Those of the API are in the namespace `Api`. */

import type * as ReactTypes from "react";

declare global {
  /** What a component may be given between its tags. */
  type Content = ReactTypes.ReactNode;

  /** Style properties, and attributes, that a component passes on to its outermost element. */
  type Styles = { [property: string]: any };

  /** A page of a source. */
  type Place = { connection: string; source: string; page: string };

  /** Changes parameters of the page's address; with `keep` the page stays where it is in the browser's history. */
  type Change = (changes: Record<string, Parameter>, options?: { keep?: boolean }) => void;
  type Parameter = string | string[] | boolean | null | undefined;

  /** A partition as a list shows it; one that is gone stays for as long as no row may move. */
  type Row = Api.PartitionRow & { isGone?: boolean };

  /** What a problem is to a person; see `Problem`. */
  type ProblemLike = { kind: string; message: string; status: number | null };

  /** What is known of something that stays fresh; `answer` stays while a later question failed. */
  type Live<Answer> = { answer: Answer | null; problem: ProblemLike | null; nextAt: number | null };
  type Refreshed<Answer> = Live<Answer> & { refresh: () => void };

  /** A state's name, its colour, and what it means. */
  type State = { label: string; palette: string; meaning: string };

  /** Where a reset begins: a choice, and its text where it needs one. */
  type ResetTarget = { name: string; text: string };

  /** What a button offers: it opens the dialog of `name`. */
  type Order = { name: string; verb: string; text: string; palette?: string; isDisabled?: boolean };

  /** What one may order for partitions. */
  type Action = "release" | "reopen" | "park" | "reset";

  /** A range of hash keys, as fractions of all. */
  type Reach = { top: number; bottom: number };

  /** A shard in the picture: the columns that it takes, and its range. */
  type Box = Reach & { shard: Api.ShardNode; from: number; to: number; open: boolean; share: number };
  type PlacedHole = Reach & { hole: Api.Hole; from: number; share: number };
  type Layout = {
    generations: number;
    boxes: Box[];
    holes: PlacedHole[];
    splits: number;
    merges: number;
    height?: number;
  };

  /** A holding in the picture of the timeline. */
  type Bar = { holding: Api.HoldingFacts; x: number; width: number; startsBefore: boolean; endsAfter: boolean };

  /**
   * A column of a table of rows: `track` is its width as a grid's column, and `align` is "end" for numbers. Columns stay
   * the same from one drawing to the next.
   */
  type RowsColumn = {
    name: string;
    title?: string;
    track: string;
    align?: string;
    cell: (row: Row, isSelected: boolean) => Content;
  };

  /** A page of a long list: `after` is where it begins, `next` where the following one does; null if there is none. */
  type ListPage = { after: string | null; next: string | null; rows: Row[]; heldBack: number };

  /** A column of a small table. */
  type Column<Of> = {
    name: string;
    title: string;
    align?: string;
    width?: string;
    maxW?: string;
    cell: (row: Of) => Content;
  };

  /** What one may ask of a supervisor. */
  type SupervisorVerb = "submit" | "handover" | "reset" | "terminate";

  /** What one may ask of all supervisors of a connection. */
  type VerbForAll = "suspend" | "resume" | "handover" | "reset" | "terminate";

  /** A value at an instant, in milliseconds; null where it is not known. */
  type TimePoint = { at: number; value: number | null };

  /** A line over time; of one of steps, a value holds until the next one. */
  type Line = { name: string; palette: string; points: TimePoint[]; isStep?: boolean; dashes?: string };

  /** Where lines are drawn: instants from left to right, and values up to `top`. */
  type Frame = { since: number; until: number; width: number; height: number; top: number };

  /** An entry of a picture's legend. */
  type LegendEntry = { label: string; palette?: string; sign?: Content; count?: number };

  /** An acknowledgment set, as the commands show it too. */
  type AcknowledgmentSet = {
    set_id: string;
    partition_key: string;
    batch_id: string;
    state: string;
    references: Record<string, number>;
    version: number;
    expires_at: string;
    ended_at: string | null;
    reason: string | null;
    created_at: string;
    timeout_seconds: number;
    progress: number;
    batch: { records?: number };
    [more: string]: any;
  };
}
