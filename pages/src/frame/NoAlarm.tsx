import { Text } from "@chakra-ui/react";

/** The line that is shown without alarms. */
export function NoAlarm() {
  return (
    <Text fontSize="sm" color="fg.muted" px={2} py={1} data-no-alarm>
      No alarms
    </Text>
  );
}
