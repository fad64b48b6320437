import { fillOf } from "../states";

/** A plain style: long tables draw thousands, and it costs less than one of the theme. */
const DOT = { display: "inline-block", borderRadius: "50%", flexShrink: 0 };

/** A spot of colour. */
export function Dot({ palette, size = "8px" }: { palette: string; size?: string }) {
  const style = { ...DOT, width: size, height: size, background: fillOf(palette) };
  return <span style={style} />;
}
