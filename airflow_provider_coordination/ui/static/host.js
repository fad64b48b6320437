/**
 * The libraries that Airflow's UI shares with its plugins: React, its router, and from Airflow 3.2 on Chakra UI with
 * Airflow's theme. Where it shares no Chakra UI, ours is loaded.
 */

const { React, ReactRouterDOM } = globalThis;

/** @typedef {{C: typeof globalThis.ChakraUI, Theme: (props: {children?: Content}) => Content, failure: string|null}} Look */

/** The components of Chakra UI, what gives them their theme, and why there are none. @returns {Promise<Look>} */
async function findLook() {
  if (globalThis.ChakraUI) return { C: globalThis.ChakraUI, Theme: React.Fragment, failure: null };
  try {
    // Its URL has the edition in it, as this module's has. tsc would check a literal one.
    const own = await import(new URL("./vendor/chakra.js", import.meta.url).href);
    return { C: own, Theme: own.Theme, failure: null };
  } catch (error) {
    const failure = error instanceof Error ? error.message : String(error);
    return { C: /** @type {any} */ (null), Theme: React.Fragment, failure };
  }
}

export const h = React.createElement;
export const { C, Theme, failure } = await findLook();
export const {
  Component,
  Fragment,
  createContext,
  memo,
  useCallback,
  useContext,
  useEffect,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
  useSyncExternalStore,
} = React;
export const { Link: RouterLink, useLocation, useNavigate } = ReactRouterDOM;
