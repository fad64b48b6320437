import { Choice } from "./Choice";

/** The choice between a chart and the same data as a list. */
export function ViewChoice({ value, onChange }: { value: string; onChange: (value: string | null) => void }) {
  return (
    <Choice
      label="View"
      value={value}
      options={[
        ["picture", "Chart"],
        ["list", "List"],
      ]}
      onChange={(name) => onChange(name === "list" ? name : null)}
    />
  );
}
