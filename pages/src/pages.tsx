/** The pages, the tab of a run, and the drawer of a partition. The code of each comes when it is opened, or is about to be. */

import { Loading } from "./components/Loading";
import { late, type Late } from "./components/late";
import type { PageProps } from "./types";
import { readPlace, ROUTE } from "./urls";

const loading = <Loading what="the page" />;

export const Overview = late(() => import("./overview/Overview").then((module) => module.Overview), loading);
export const TaskTab = late(() => import("./task/TaskTab").then((module) => module.TaskTab), loading);
export const PartitionDrawer = late(() =>
  import("./partition/PartitionDrawer").then((module) => module.PartitionDrawer),
);

/** The component of each page of `PAGES`. */
export const PAGE_COMPONENTS: Record<string, Late<PageProps>> = {
  partitions: late(() => import("./partitions/PartitionsPage").then((module) => module.PartitionsPage), loading),
  shards: late(() => import("./shards/ShardsPage").then((module) => module.ShardsPage), loading),
  timeline: late(() => import("./timeline/TimelinePage").then((module) => module.TimelinePage), loading),
  calendar: late(() => import("./calendar/CalendarPage").then((module) => module.CalendarPage), loading),
  acknowledgments: late(
    () => import("./acknowledgments/AcknowledgmentsPage").then((module) => module.AcknowledgmentsPage),
    loading,
  ),
  workers: late(() => import("./workers/WorkersPage").then((module) => module.WorkersPage), loading),
  supervisor: late(() => import("./supervisor/SupervisorPage").then((module) => module.SupervisorPage), loading),
};

/** Load the code of the page that a path of Airflow's UI leads to. */
export function preloadPage(pathname: string) {
  const { page } = readPlace(pathname);
  if (page !== null) PAGE_COMPONENTS[page].preload();
  else if (pathname.includes(ROUTE)) (pathname.includes("/dags/") ? TaskTab : Overview).preload();
}
