/** A table of some rows, a hundred at first. On narrow screens each row becomes a card. */

export const SHOWN = 100;

/** In pixels: tables with few columns stay tables down to this width. */
export const PHONE_WIDTH = 520;
