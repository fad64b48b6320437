import { Box } from "@chakra-ui/react";

/** The number of other lines, shorter on a phone. */
export function More({ count }: { count: number }) {
  return (
    <>
      <Box as="span" hideBelow="md">
        {`and ${count} more`}
      </Box>
      <Box as="span" hideFrom="md">
        {`+${count}`}
      </Box>
    </>
  );
}
