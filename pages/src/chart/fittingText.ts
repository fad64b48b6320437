/** The controls that the charts share. */

/** Return a text, shortened to a width; "" if too little of it would fit. */
export function fittingText(text: string, width: number, perCharacter = 6.6) {
  const room = Math.floor(width / perCharacter);
  if (room < 3) return "";
  return text.length <= room ? text : `${text.slice(0, room - 1)}…`;
}
