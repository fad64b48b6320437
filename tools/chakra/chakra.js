/**
 * What the pages use of Chakra UI, for an Airflow that shares none with its plugins. Its React is the host's. Its
 * theme has the host's colours and fonts, as those are CSS variables of the host's page, and follows its colour mode.
 */

import { ChakraProvider, createSystem, defaultConfig } from "@chakra-ui/react";
import { createElement } from "react";

export {
  Alert,
  Badge,
  Box,
  Button,
  ButtonGroup,
  CloseButton,
  Code,
  Dialog,
  Drawer,
  EmptyState,
  Field,
  Flex,
  Grid,
  Heading,
  Icon,
  IconButton,
  Input,
  InputGroup,
  Link,
  LinkBox,
  LinkOverlay,
  NativeSelect,
  Portal,
  Skeleton,
  Span,
  Spinner,
  Stack,
  Status,
  Strong,
  Table,
  Text,
  Textarea,
  VisuallyHidden,
  chakra,
} from "@chakra-ui/react";

/** The colours that Airflow adds to Chakra's: only names, the values are the host's. */
const BRAND = {
  tokens: Object.fromEntries(
    [50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950].map((shade) => [shade, { value: `{colors.blue.${shade}}` }]),
  ),
  semanticTokens: Object.fromEntries(
    ["solid", "contrast", "fg", "muted", "subtle", "emphasized", "focusRing"].map((use) => [
      use,
      { value: `{colors.blue.${use}}` },
    ]),
  ),
};

/** Chakra's theme with the choices of Airflow 3.3. */
const system = createSystem(defaultConfig, {
  theme: {
    tokens: { colors: { brand: BRAND.tokens } },
    semanticTokens: { colors: { brand: BRAND.semanticTokens } },
    recipes: { button: { base: { colorPalette: "brand" }, defaultVariants: { size: "sm" } } },
    slotRecipes: {
      dialog: { slots: [], defaultVariants: { size: "xl" } },
      table: { slots: [], defaultVariants: { size: "sm" } },
    },
  },
});

// The host has the reset and the variables. Ours are below all of its layers: only those count that the host lacks.
const own = { ...system, _global: { "@layer reset.coordination": system.getTokenCss()["@layer tokens"] } };

/** Gives the components below it the theme. @param {{children?: any}} props */
export function Theme({ children }) {
  return createElement(ChakraProvider, { value: own }, children);
}
