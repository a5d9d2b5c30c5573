// Tells the style sheet how high an element is, by a variable: what floats above it must know.
import type { RefObject } from 'preact'
import { useEffect, useRef } from 'preact/hooks'

export function useTellHeight(variable: string): RefObject<HTMLDivElement | null> {
  const element = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const { style } = document.documentElement
    const watcher = new ResizeObserver(() => style.setProperty(variable, `${element.current?.offsetHeight ?? 0}px`))
    watcher.observe(element.current as HTMLElement)
    return () => {
      watcher.disconnect()
      style.removeProperty(variable)
    }
  }, [])
  return element
}
