/** The actions of users on partitions and supervisors, as the API describes them. */

import { useQuery } from "@tanstack/react-query";

import { queries } from "../api/live";
import { request } from "../api/request";
import type { UserAction, UserActions } from "../api/schema";

const UNKNOWN: UserAction = {
  name: "",
  label: "",
  done: "",
  text: "",
  text_for_many: "",
  risk: "",
  is_destructive: false,
};

const RETRY_MILLISECONDS = 5000;

/** Return the actions on partitions or supervisors, in the order of their buttons; none while they are not known. */
export function useActions(objects: "partitions" | "supervisors"): UserAction[] {
  // Requested once for all pages: it depends on nothing but the version of the provider.
  const { data } = useQuery<UserActions>(
    {
      queryKey: ["actions"],
      queryFn: () => request("actions"),
      staleTime: Infinity,
      retry: true,
      retryDelay: RETRY_MILLISECONDS,
    },
    queries,
  );
  return data?.[objects] ?? [];
}

/** Return an action by its name, with the palette of its button. */
export function useActionNamed(objects: "partitions" | "supervisors", name: string) {
  const action = useActions(objects).find((each) => each.name === name) ?? UNKNOWN;
  return { ...action, palette: action.is_destructive ? "red" : "brand" };
}
