/** The actions that suspend and resume a source. */

import type { Suspension } from "../api/schema";
import { useActionNamed } from "./userActions";

export function useActionOn(suspended: Suspension | null) {
  return useActionNamed("supervisors", suspended === null ? "suspend" : "resume");
}
