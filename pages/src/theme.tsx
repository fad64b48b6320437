/**
 * Chakra UI with Airflow's look. Colours, fonts, spacing and the colour mode are CSS variables of Airflow's page, so
 * that the pages follow its theme on every version.
 */

import { ChakraProvider, createSystem, defaultBaseConfig, type SystemContext } from "@chakra-ui/react";
import {
  alertSlotRecipe,
  animationStyles,
  badgeRecipe,
  breakpoints,
  buttonRecipe,
  codeRecipe,
  dialogSlotRecipe,
  drawerSlotRecipe,
  emptyStateSlotRecipe,
  fieldSlotRecipe,
  headingRecipe,
  iconRecipe,
  inputRecipe,
  keyframes,
  layerStyles,
  linkRecipe,
  nativeSelectSlotRecipe,
  semanticTokens,
  skeletonRecipe,
  spinnerRecipe,
  statusSlotRecipe,
  tableSlotRecipe,
  textareaRecipe,
  textStyles,
  tokens,
} from "@chakra-ui/react/theme";

import type { Content } from "./types";

/** The colours that Airflow adds to Chakra's: only names, the values are Airflow's. */
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

/** Chakra's theme with the choices of Airflow 3.3, and the recipes of what the pages use alone: there are sixty. */
const system = createSystem(
  defaultBaseConfig,
  {
    cssVarsPrefix: "chakra",
    cssVarsRoot: ":where(html, .chakra-theme)",
    theme: {
      breakpoints,
      keyframes,
      tokens,
      semanticTokens,
      textStyles,
      layerStyles,
      animationStyles,
      recipes: {
        badge: badgeRecipe,
        button: buttonRecipe,
        code: codeRecipe,
        heading: headingRecipe,
        icon: iconRecipe,
        input: inputRecipe,
        link: linkRecipe,
        skeleton: skeletonRecipe,
        spinner: spinnerRecipe,
        textarea: textareaRecipe,
      },
      slotRecipes: {
        alert: alertSlotRecipe,
        dialog: dialogSlotRecipe,
        drawer: drawerSlotRecipe,
        emptyState: emptyStateSlotRecipe,
        field: fieldSlotRecipe,
        nativeSelect: nativeSelectSlotRecipe,
        status: statusSlotRecipe,
        table: tableSlotRecipe,
      },
    },
  },
  {
    theme: {
      tokens: { colors: { brand: BRAND.tokens } },
      semanticTokens: { colors: { brand: BRAND.semanticTokens } },
      recipes: { button: { base: { colorPalette: "brand" }, defaultVariants: { size: "sm" } } },
      slotRecipes: {
        dialog: { slots: [], defaultVariants: { size: "xl" } },
        table: { slots: [], defaultVariants: { size: "sm" } },
      },
    },
  },
);

// Airflow has the reset and the variables. Ours are below all of its layers: only those count that Airflow lacks.
const own = {
  ...system,
  _global: { "@layer reset.coordination": system.getTokenCss()["@layer tokens"] },
} as unknown as SystemContext;

/** Gives the components below it the theme. */
export function Theme({ children }: { children?: Content }) {
  return <ChakraProvider value={own}>{children}</ChakraProvider>;
}
