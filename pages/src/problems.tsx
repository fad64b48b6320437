/** What a page shows without content: that it loads, that there is nothing, or what is wrong and what to do. */

import {
  Alert,
  Box,
  Button,
  EmptyState as ChakraEmptyState,
  Flex,
  Skeleton,
  Stack,
  Text,
  VisuallyHidden,
} from "@chakra-ui/react";

import { logIn } from "./api";
import { useNow } from "./clock";
import { Icon } from "./icons";
import { capitalized } from "./text";
import { duration } from "./time";
import { ManualLink } from "./widgets";
import type { Content, ProblemLike, Refreshed } from "./types";

/** Return the description of a problem: a title, what it means, and whether the page retries automatically. */
function descriptionOf(problem: ProblemLike, connection: string | undefined) {
  const named = connection ? `the connection “${connection}”` : "this connection";
  switch (problem.kind) {
    case "session":
      return { title: "Your session has ended", text: "Log in again to return to this page.", icon: "lock" };
    case "forbidden":
      return {
        title: "No permission to view this",
        text: `You need permission to read ${named}. Ask an Airflow administrator for “can read” on Connections.`,
        icon: "lock",
        topic: "access",
      };
    case "missing":
      return { title: "Not found", text: sentence(problem.message), icon: "search" };
    case "refused":
      return { title: "Invalid request", text: sentence(problem.message), icon: "alert", topic: "failed-request" };
    case "unavailable":
      return {
        title: "The store is unavailable",
        text: "Restore it. Airflow is not affected, and running jobs wait for the store for 5 min. This page retries automatically.",
        icon: "plug",
        isRetried: true,
        topic: "store",
      };
    case "offline":
      return {
        title: "Airflow’s API server is unavailable",
        text: "Check your network and the API server. This page retries automatically.",
        icon: "plug",
        isRetried: true,
      };
    default:
      return {
        title: "The request failed",
        text: `${sentence(problem.message)} This page retries automatically.`,
        icon: "alert",
        isRetried: true,
        topic: "failed-request",
      };
  }
}

function sentence(text: string) {
  const whole = capitalized(text);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

function RetryCountdown({ nextAt }: { nextAt: number | null }) {
  useNow(); // it counts down
  const left = nextAt === null ? 0 : (nextAt - Date.now()) / 1000;
  return left > 0.5 ? `Retrying in ${duration(Math.ceil(left))}.` : "Retrying now.";
}

/** A page, or a part of one, that cannot be shown because of a problem. */
export function ProblemPage({
  problem,
  connection,
  nextAt = null,
  refresh,
}: {
  problem: ProblemLike;
  connection?: string;
  nextAt?: number | null;
  refresh?: () => void;
}) {
  const words = descriptionOf(problem, connection);
  return (
    <EmptyState title={words.title} text={words.text} icon={words.icon} role="alert" kind={problem.kind}>
      {words.isRetried && (
        <Text fontSize="sm" color="fg.muted" aria-live="off">
          <RetryCountdown nextAt={nextAt} />
        </Text>
      )}
      {words.topic && <ManualLink topic={words.topic} />}
      {problem.kind === "session" ? (
        <Button size="sm" onClick={logIn} colorPalette="brand">
          Log in again
        </Button>
      ) : (
        refresh && (
          <Button size="sm" variant="outline" onClick={refresh}>
            Retry now
          </Button>
        )
      )}
    </EmptyState>
  );
}

/**
 * One of several parts of a page that cannot be shown because of a problem.
 *
 * @param props `topic`
 *     is where the manual says more
 */
export function ProblemPart({
  title,
  text,
  icon,
  kind,
  topic,
  children,
}: {
  title: string;
  text?: Content;
  icon: string;
  kind: string;
  topic?: string;
  children?: Content;
}) {
  return (
    <Flex
      gap={3}
      align="flex-start"
      wrap="wrap"
      p={4}
      borderWidth={1}
      borderColor="border.emphasized"
      borderStartWidth={4}
      borderStartColor="orange.solid"
      borderRadius="md"
      maxW="760px"
      role="alert"
      data-problem={kind}
    >
      <Box color="orange.fg" pt="2px">
        <Icon name={icon} size={5} />
      </Box>
      <Box minW={0} flex="1 1 200px">
        <Text fontWeight="semibold">{title}</Text>
        <Text fontSize="sm" color="fg.muted" overflowWrap="anywhere">
          {text}
        </Text>
      </Box>
      {topic && <ManualLink topic={topic} />}
      {children}
    </Flex>
  );
}

/** A line below the content from before a problem. It is always visible, and moves nothing of the content. */
export function StaleNote({
  problem,
  connection,
  nextAt = null,
  refresh,
}: {
  problem: ProblemLike;
  connection?: string;
  nextAt?: number | null;
  refresh?: () => void;
}) {
  const words = descriptionOf(problem, connection);
  return (
    <Alert.Root
      status={words.isRetried ? "warning" : "error"}
      size="sm"
      role="alert"
      mt={3}
      position="sticky"
      bottom={0}
      zIndex={3}
      flexShrink={0}
      data-problem={problem.kind}
      flexWrap="wrap"
    >
      <Alert.Indicator>
        <Icon name={words.icon} />
      </Alert.Indicator>
      <Alert.Content minW={0} flex={1} display="block" color="fg">
        <Alert.Title as="span" fontWeight="semibold">
          {`${words.title}. `}
        </Alert.Title>
        <Alert.Description as="span">
          {"The page shows the last known state. "}
          {words.isRetried && <RetryCountdown nextAt={nextAt} />}
        </Alert.Description>
      </Alert.Content>
      {words.topic && <ManualLink topic={words.topic} />}
      {problem.kind === "session" ? (
        <Button size="xs" variant="outline" onClick={logIn}>
          Log in again
        </Button>
      ) : (
        refresh && (
          <Button size="xs" variant="outline" onClick={refresh}>
            Retry now
          </Button>
        )
      )}
    </Alert.Root>
  );
}

/** The reason why there is nothing to show. */
export function EmptyState({
  title,
  text,
  icon = "search",
  kind,
  role,
  children,
}: {
  title: string;
  text?: Content;
  icon?: string;
  kind?: string;
  role?: string;
  children?: Content;
}) {
  return (
    <ChakraEmptyState.Root role={role} data-problem={kind} py={10}>
      <ChakraEmptyState.Content maxW="lg" mx="auto">
        <ChakraEmptyState.Indicator color="fg.muted">
          <Icon name={icon} size={8} />
        </ChakraEmptyState.Indicator>
        <ChakraEmptyState.Title as="h2" textAlign="center">
          {title}
        </ChakraEmptyState.Title>
        {text && (
          <ChakraEmptyState.Description textAlign="center" color="fg.muted" overflowWrap="anywhere">
            {text}
          </ChakraEmptyState.Description>
        )}
        {children}
      </ChakraEmptyState.Content>
    </ChakraEmptyState.Root>
  );
}

/** The placeholder of something that loads. */
export function Loading({ what, rows = 6, height = 9 }: { what: string; rows?: number; height?: number }) {
  return (
    <Stack gap={2} aria-busy>
      <VisuallyHidden role="status">{`Loading ${what}`}</VisuallyHidden>
      {Array.from({ length: rows }, (_, index) => (
        <Skeleton key={index} height={height} opacity={1 - index / (rows + 1)} />
      ))}
    </Stack>
  );
}

/**
 * Show the content of a live response, or a placeholder for it.
 *
 * @param props
 *     `isPart` if the page shows more than this
 */
export function LiveContent({
  live,
  what,
  connection,
  rows,
  isPart = false,
  children,
}: {
  live: Refreshed<any>;
  what: string;
  connection?: string;
  rows?: number;
  isPart?: boolean;
  children: (response: any) => Content;
}) {
  const { response, problem, nextAt, refresh } = live;
  if (response !== null && problem?.kind !== "forbidden") {
    return [
      children(response),
      problem && <StaleNote key="stale" problem={problem} connection={connection} nextAt={nextAt} refresh={refresh} />,
    ];
  }
  if (problem !== null && isPart) {
    const words = descriptionOf(problem, connection);
    const text = [words.text, " ", words.isRetried && <RetryCountdown key="again" nextAt={nextAt} />];
    return (
      <ProblemPart {...words} text={text} kind={problem.kind}>
        {problem.kind === "session" ? (
          <Button size="xs" onClick={logIn} colorPalette="brand">
            Log in again
          </Button>
        ) : (
          <Button size="xs" variant="outline" onClick={refresh}>
            Retry now
          </Button>
        )}
      </ProblemPart>
    );
  }
  if (problem !== null)
    return <ProblemPage problem={problem} connection={connection} nextAt={nextAt} refresh={refresh} />;
  return <Loading what={what} rows={rows} />;
}
