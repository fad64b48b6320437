/** What Airflow's UI gives its plugins as globals. React's types are its own; of the others, what the pages use. */

import type * as ReactTypes from "react";

declare global {
  /** React's events, as handlers get them. */
  type ReactChangeEvent = ReactTypes.ChangeEvent<HTMLInputElement>;
  type ReactFormEvent = ReactTypes.FormEvent;
  type ReactKeyEvent = ReactTypes.KeyboardEvent & { target: Element };
  type ReactMouseEvent = ReactTypes.MouseEvent & { target: Element };
  type ReactPointerEvent = ReactTypes.PointerEvent;

  /** What a component of Chakra UI takes: events, and style properties by the hundred, of which any are taken. */
  interface ChakraProps {
    onClick?: (event: ReactMouseEvent) => void;
    onChange?: (event: ReactChangeEvent) => void;
    onKeyDown?: (event: ReactKeyEvent) => void;
    onFocus?: (event: ReactTypes.FocusEvent<HTMLElement>) => void;
    onBlur?: (event: ReactTypes.FocusEvent<HTMLElement>) => void;
    onScroll?: (event: ReactTypes.UIEvent<HTMLElement>) => void;
    onSubmit?: (event: ReactFormEvent) => void;
    onPointerDown?: (event: ReactTypes.PointerEvent<HTMLElement>) => void;
    onPointerMove?: (event: ReactTypes.PointerEvent<HTMLElement>) => void;
    onPointerEnter?: (event: ReactTypes.PointerEvent<HTMLElement>) => void;
    onPointerLeave?: (event: ReactTypes.PointerEvent<HTMLElement>) => void;
    onOpenChange?: (details: { open: boolean }) => void;
    [style: string]: any;
  }

  /** A component, or a group of them, such as `Alert`. */
  type ChakraComponent = ReactTypes.FunctionComponent<ChakraProps> &
    Record<ChakraPart, ReactTypes.FunctionComponent<ChakraProps>>;
  type ChakraPart =
    | "Backdrop"
    | "Body"
    | "Cell"
    | "CloseTrigger"
    | "ColumnHeader"
    | "Content"
    | "Description"
    | "ErrorText"
    | "Field"
    | "Footer"
    | "Header"
    | "Indicator"
    | "Label"
    | "Positioner"
    | "RequiredIndicator"
    | "Root"
    | "Row"
    | "Title";

  /** Where a link leads: an address, or its parts. */
  type To = string | { pathname?: string; search?: string; hash?: string };

  interface Router {
    Link: ReactTypes.FunctionComponent<{ to: To; children?: ReactTypes.ReactNode }>;
    useLocation: () => { pathname: string; search: string; hash: string };
    useNavigate: () => (to: To, options?: { replace?: boolean }) => void;
  }

  var React: typeof ReactTypes;
  var ReactRouterDOM: Router;
  var ChakraUI: Record<string, ChakraComponent> & {
    chakra: { button: ReactTypes.FunctionComponent<ChakraProps> };
  };
}
