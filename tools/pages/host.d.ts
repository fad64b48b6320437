/** The globals that Airflow's UI gives its plugins. React has its own types; of the others, only what the pages use is declared. */

import type * as ReactTypes from "react";

declare global {
  /** React's events in event handlers. */
  type ReactChangeEvent = ReactTypes.ChangeEvent<HTMLInputElement>;
  type ReactFormEvent = ReactTypes.FormEvent;
  type ReactKeyEvent = ReactTypes.KeyboardEvent & { target: Element };
  type ReactMouseEvent = ReactTypes.MouseEvent & { target: Element };
  type ReactPointerEvent = ReactTypes.PointerEvent;

  /** The properties of a component of Chakra UI: events, and any of hundreds of style properties. */
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

  /** The target of a link: a URL, or its parts. */
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
