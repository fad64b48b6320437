/** The size of elements on the screen. */

import { useLayoutEffect, useState } from "react";

/**
 * Return the current size of an element, in pixels.
 *
 * @returns the size, and a `ref`
 */
export function useSize(): [{ width: number; height: number }, (element: Element | null) => void] {
  const [element, setElement] = useState<Element | null>(null);
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
  return [size, setElement];
}
