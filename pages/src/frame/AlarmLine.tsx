import { Box, Flex, Text } from "@chakra-ui/react";

import type { Alarm } from "../api/schema";
import { Icon } from "../components/Icon";
import { ManualLink } from "../components/ManualLink";
import { PageLink } from "../components/PageLink";
import { Warning } from "../components/Warning";
import { capitalized } from "../format/text";
import { alarmTarget } from "../urls";

/**
 * An alarm as a line. It links to its subject and to the manual. A word shows its level as well as a colour.
 *
 * @param props `isFolded` if its
 *   link to the manual stays on its line; else the link moves below a text that has little space
 */
export function AlarmLine({
  alarm,
  place,
  isFolded = false,
}: {
  alarm: Alarm;
  place: { connection: string; source: string };
  isFolded?: boolean;
}) {
  return (
    <Warning level={alarm.level}>
      <Flex as="span" columnGap={3} align="center" wrap={isFolded ? undefined : "wrap"}>
        <PageLink
          to={alarmTarget(place, alarm.about)}
          data-about={alarm.about}
          color="inherit"
          display="flex"
          justifyContent="space-between"
          alignItems="center"
          gap={2}
          flex={isFolded ? 1 : "1 1 240px"}
          minW={0}
        >
          <>
            <Text as="span" overflowWrap="anywhere" minW={0} data-text>
              {capitalized(alarm.text)}
            </Text>
            <Box as="span" flexShrink={0} data-chevron>
              <Icon name="chevron" size={3} />
            </Box>
          </>
        </PageLink>
        <ManualLink manual={alarm.manual} />
      </Flex>
    </Warning>
  );
}
