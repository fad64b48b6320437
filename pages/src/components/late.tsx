import { useEffect, useState, type ComponentType } from "react";

import type { Content } from "../types";

/** A component whose code comes with the first use of it, or with `preload`. */
export type Late<Props> = ComponentType<Props> & { preload: () => void };

/**
 * Return a component that loads its code when it is first drawn.
 *
 * React's `lazy` would show the placeholder for a moment even if the code is there, and for 300 ms if it is not.
 *
 * @param load the component
 * @param placeholder until then
 */
export function late<Props extends object>(
  load: () => Promise<ComponentType<Props>>,
  placeholder: Content = null,
): Late<Props> {
  let loaded: ComponentType<Props> | null = null;
  let loading: Promise<void> | null = null;
  const start = () => {
    loading ??= load().then(
      (component) => {
        loaded = component;
      },
      () => {
        loading = null;
        throw new Error(
          "A part of the pages could not be loaded: the server was upgraded since you opened them, or is unavailable.",
        );
      },
    );
    return loading;
  };
  function LateComponent(props: Props) {
    const [Loaded, setLoaded] = useState(() => loaded);
    const [error, setError] = useState<Error | null>(null);
    useEffect(() => {
      if (Loaded === null) start().then(() => setLoaded(() => loaded), setError);
    }, [Loaded]);
    if (error !== null) throw error;
    return Loaded === null ? placeholder : <Loaded {...props} />;
  }
  return Object.assign(LateComponent, { preload: () => void start().catch(() => undefined) });
}
