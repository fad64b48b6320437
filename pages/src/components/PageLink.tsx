import { Link } from "@chakra-ui/react";
import { Link as RouterLink, type To } from "react-router-dom";

import type { Content, Styles } from "../types";

/** A link to a page of Airflow or of this plugin. */
export function PageLink({ to, children, ...rest }: { to: To; children?: Content } & Styles) {
  return (
    <Link asChild color="blue.fg" {...rest}>
      <RouterLink to={to}>{children}</RouterLink>
    </Link>
  );
}
