/** The dialogs. Their code, with what keeps the focus in a dialog, comes when the first one is opened. */

import { late } from "./components/late";

const load = () => import("./dialogModules");

export const ActionDialog = late(() => load().then((dialogs) => dialogs.ActionDialog));
export const AuditDialog = late(() => load().then((dialogs) => dialogs.AuditDialog));
export const ForAllDialog = late(() => load().then((dialogs) => dialogs.ForAllDialog));
export const ReleaseDialog = late(() => load().then((dialogs) => dialogs.ReleaseDialog));
export const SuspensionDialog = late(() => load().then((dialogs) => dialogs.SuspensionDialog));
export const VerbDialog = late(() => load().then((dialogs) => dialogs.VerbDialog));
