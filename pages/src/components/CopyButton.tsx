import { IconButton, VisuallyHidden } from "@chakra-ui/react";
import { useEffect, useState } from "react";

import type { Styles } from "../types";
import { Icon } from "./Icon";
import { copy } from "./copy";

/** A button that copies a text. */
export function CopyButton({ text, label, ...rest }: { text: string; label: string } & Styles) {
  const [copied, setCopied] = useState<string | null>(null);
  useEffect(() => {
    if (copied === null) return undefined;
    const timer = setTimeout(() => setCopied(null), 2000);
    return () => clearTimeout(timer);
  }, [copied]);
  return (
    <>
      <IconButton
        size="2xs"
        variant="ghost"
        aria-label={label}
        title={copied ?? label}
        onClick={async (event) => {
          event.stopPropagation();
          setCopied((await copy(text)) ? "Copied" : "Your browser does not allow copying");
        }}
        {...rest}
      >
        <Icon name={copied === "Copied" ? "check" : "copy"} size={3.5} />
      </IconButton>
      <VisuallyHidden role="status">{copied ?? ""}</VisuallyHidden>
    </>
  );
}
