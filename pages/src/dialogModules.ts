/** What `dialogs` loads, as one file. */

export { ReleaseDialog } from "./acknowledgments/ReleaseDialog";
export { ActionDialog } from "./actions/ActionDialog";
export { SuspensionDialog } from "./actions/SuspensionDialog";
export { AuditDialog } from "./supervisor/AuditDialog";
export { ForAllDialog } from "./supervisor/ForAllDialog";
export { VerbDialog } from "./supervisor/VerbDialog";
