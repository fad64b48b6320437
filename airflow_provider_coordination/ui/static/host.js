/** The libraries that Airflow's UI shares with its plugins: React, its router, and Chakra UI with Airflow's theme. */

const { React, ReactRouterDOM, ChakraUI } = globalThis;

export const h = React.createElement;
export const C = ChakraUI;
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
