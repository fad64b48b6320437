/** A line chart over time. The values at the pointer, or at the point chosen with the arrow keys, are shown below it. */

export const HEIGHT = 120;
export const FOOT = 18;
export const HEAD = 6;
/** The width of the axis labels, left of the lines. */
export const SIDE = 66;
/** A style, as Airflow's own styles override attributes. */
export const TEXT = { fontSize: "11px" };
export const MUTED = "var(--chakra-colors-fg-muted)";
