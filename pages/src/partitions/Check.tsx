import { useEffect, useRef, type ChangeEvent } from "react";

export function Check({
  label,
  isOn,
  isSome = false,
  onChange,
}: {
  label: string;
  isOn: boolean;
  isSome?: boolean;
  onChange: (event: ChangeEvent<HTMLInputElement>) => void;
}) {
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (box.current !== null) box.current.indeterminate = isSome;
  });
  return (
    <input
      ref={box}
      type="checkbox"
      aria-label={label}
      checked={isOn}
      onChange={onChange}
      style={{
        width: 16,
        height: 16,
        accentColor: "var(--chakra-colors-brand-solid)",
        cursor: "pointer",
        flexShrink: 0,
      }}
    />
  );
}
