import { chakra, Span } from "@chakra-ui/react";

import { Icon } from "../components/Icon";

export function SortButton({
  title,
  isOn,
  isDescending,
  hint,
  onClick,
}: {
  title: string;
  isOn: boolean;
  isDescending: boolean;
  hint?: string;
  onClick: () => void;
}) {
  return (
    <chakra.button
      type="button"
      onClick={onClick}
      title={hint}
      fontWeight="semibold"
      cursor="pointer"
      display="inline-flex"
      alignItems="center"
      gap={1}
      color={isOn ? "fg" : "fg.muted"}
    >
      {title}
      {isOn ? <Span aria-hidden>{isDescending ? "↓" : "↑"}</Span> : <Icon name="sort" size={3} />}
    </chakra.button>
  );
}
