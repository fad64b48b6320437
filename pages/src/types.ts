/** The types that the modules of the pages share. Those of the API are generated: see `schema.d.ts`. */

import type { ReactNode } from "react";

import type {
  ConnectionRow,
  HoldingFacts,
  Hole,
  PartitionRow,
  ShardNode,
  SourceCard,
  SourceCards,
  SupervisorList,
} from "./api/schema";

/** The children of a component. */
export type Content = ReactNode;

/** Style properties and attributes that a component passes to its outermost element. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- any of hundreds of properties of styles
export type Styles = Record<string, any>;

/** A JSON object that is shown as it is, such as a spec. */
export type JsonObject = Record<string, unknown>;

/** The sources or the supervisors of a connection. */
export type Found = Partial<SourceCards & SupervisorList>;

/** A page of a source. */
export type Place = { connection: string; source: string; page: string };

/** Changes parameters of the page's URL. With `keep` the previous URL stays in the browser's history. */
export type Change = (changes: Record<string, Parameter>, options?: { keep?: boolean }) => void;
export type Parameter = string | string[] | boolean | null | undefined;

/** What each page of a source gets; `card` and `connection` are null while they are not known. */
export type PageProps = {
  place: Place;
  card: SourceCard | null;
  connection: ConnectionRow | null;
  parameters: URLSearchParams;
  change: Change;
  search: string;
};

/** A row of a list of partitions. One that is gone stays as long as no row may move. */
export type Row = PartitionRow & { isGone?: boolean };

/** The parts of a problem that are shown; see `Problem`. */
export type ProblemLike = { kind: string; message: string; status: number | null };

/** A response that is kept fresh. `response` stays while later requests fail. */
export type Live<Body> = { response: Body | null; problem: ProblemLike | null; nextAt: number | null };
export type Refreshed<Body> = Live<Body> & { refresh: () => void };

/** The label, the colour and the meaning of a state. */
export type State = { label: string; palette: string; meaning: string };

/** The target position of a reset: a choice, and its text if it needs one. */
export type ResetTarget = { name: string; text: string };

/** The button of an action: it opens the dialog of `name`. */
export type ActionOption = { name: string; verb: string; text: string; palette?: string; isDisabled?: boolean };

/** A range of hash keys, as fractions of all. */
export type Reach = { top: number; bottom: number };

/** A shard in the chart: its columns and its range. */
export type ShardBox = Reach & { shard: ShardNode; from: number; to: number; open: boolean; share: number };
export type PlacedHole = Reach & { hole: Hole; from: number; share: number };
export type Layout = {
  generations: number;
  boxes: ShardBox[];
  holes: PlacedHole[];
  hasHashKeys: boolean;
  splits: number;
  merges: number;
  height?: number;
};

/** A holding in the chart of the timeline. */
export type Bar = { holding: HoldingFacts; x: number; width: number; startsBefore: boolean; endsAfter: boolean };

/** A page of a long list: `after` is its start, `next` the start of the following page; null if there is none. */
export type ListPage = { after: string | null; next: string | null; rows: Row[]; heldBack: number };

/** A column of a small table. A table can be sorted by columns with a `value`; rows without one come last. */
export type Column<Of> = {
  name: string;
  title: string;
  align?: string;
  width?: string;
  maxW?: string;
  value?: (row: Of) => string | number | null | undefined;
  cell: (row: Of) => Content;
};

/** A value at an instant, in milliseconds; null where it is not known. */
export type TimePoint = { at: number; value: number | null };

/** A line over time. In a line of steps, a value holds until the next one. */
export type Line = { name: string; palette: string; points: TimePoint[]; isStep?: boolean; dashes?: string };

/** The unit of a chart's values; it decides which values of the axis are round. */
export type Unit = "count" | "rate" | "seconds" | "bytes";

/** An entry of a chart's legend. */
export type LegendEntry = { label: string; palette?: string; sign?: Content; count?: number };

/** An acknowledgment set, in the same form as the commands print it. */
export type AcknowledgmentSet = {
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
  sinks: string[];
};
