/** Copy a text to the clipboard; return whether that worked. */
export async function copy(text: string) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Browsers have no clipboard without TLS; this older way works there.
    const area = document.createElement("textarea");
    area.value = text;
    area.style.position = "fixed";
    area.style.opacity = "0";
    const dialog = document.activeElement?.closest("[role=dialog],[role=alertdialog]") ?? document.body;
    const focused = document.activeElement;
    dialog.append(area);
    area.select();
    const worked = document.execCommand("copy");
    area.remove();
    (focused as HTMLElement | null)?.focus();
    return worked;
  }
}
