import { request } from "../api/request";
import type { Suspension } from "../api/schema";
import { useMessage } from "../components/useMessage";
import type { Place } from "../types";
import { sourceApi } from "../urls";
import { ReasonDialog } from "./ReasonDialog";
import { useAction } from "./useAction";
import { useActionOn } from "./useActionOn";

export function SuspensionDialog({
  place,
  suspended,
  refresh,
  onClose,
}: {
  place: Place;
  suspended: Suspension | null;
  refresh: () => void;
  onClose: () => void;
}) {
  const { name, label, text, risk } = useActionOn(suspended);
  const { run, ...attempt } = useAction();
  const showMessage = useMessage();

  const onConfirm = async (reason: string) => {
    await run(async () => {
      const body = suspended === null ? { reason } : { reason, since: suspended.since };
      await request(sourceApi(place.connection, place.source, name), { body });
      showMessage(suspended === null ? `${place.source} is suspended.` : `${place.source} is resumed.`);
      onClose();
    });
    refresh();
  };
  return (
    <ReasonDialog
      title={`${label} ${place.source}?`}
      text={text}
      risk={risk}
      verb={label}
      onConfirm={onConfirm}
      onClose={onClose}
      {...attempt}
    />
  );
}
