// A canvas that is drawn when one of the reasons changes, and anew for another size or other colours.
import type { RefObject } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { onThemeChange } from './themeColours.js'

export function useDrawing(
  draw: (canvas: HTMLCanvasElement) => void,
  reasons: readonly unknown[],
): RefObject<HTMLCanvasElement | null> {
  const canvas = useRef<HTMLCanvasElement>(null)
  const latest = useRef(draw)
  latest.current = draw
  useEffect(() => {
    if (canvas.current) latest.current(canvas.current)
  }, reasons)
  useEffect(() => {
    const element = canvas.current as HTMLCanvasElement
    const redraw = () => latest.current(element)
    const watcher = new ResizeObserver(redraw)
    watcher.observe(element)
    const forget = onThemeChange(redraw)
    return () => {
      watcher.disconnect()
      forget()
    }
  }, [])
  return canvas
}
