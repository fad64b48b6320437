/** The size of elements on the screen. */

import { useCallback, useLayoutEffect, useRef, useState, type RefObject } from "react";

type Size = { width: number; height: number };

/**
 * Return the current size of an element, in pixels.
 *
 * @returns the size, the `ref` to give to the element, and the element
 */
export function useSize(): [Size, (element: HTMLElement | null) => void, RefObject<HTMLElement | null>] {
  const [element, setElement] = useState<HTMLElement | null>(null);
  const current = useRef<HTMLElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    if (element === null) return undefined;
    const measure = () => {
      const [width, height] = [element.clientWidth, element.clientHeight];
      setSize((known) => (known.width === width && known.height === height ? known : { width, height }));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [element]);
  const attach = useCallback((attached: HTMLElement | null) => {
    current.current = attached;
    setElement(attached);
  }, []);
  return [size, attach, current];
}
