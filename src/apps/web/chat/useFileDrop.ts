// Files that are dropped anywhere on the page. Without this the browser would leave the page and show the file.
import { useEffect, useRef, useState } from 'preact/hooks'

/** Whether files are being dragged over the page. */
export function useFileDrop(onDrop: (files: readonly File[]) => void): boolean {
  const [isOver, setOver] = useState(false)
  const latest = useRef(onDrop)
  latest.current = onDrop
  useEffect(() => {
    const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes('Files') ?? false
    const over = (event: DragEvent) => {
      if (!hasFiles(event)) return
      event.preventDefault()
      setOver(true)
    }
    const leave = (event: DragEvent) => {
      if (event.relatedTarget === null) setOver(false) // out of the window
    }
    const drop = (event: DragEvent) => {
      setOver(false)
      if (!hasFiles(event)) return
      event.preventDefault()
      latest.current([...(event.dataTransfer?.files ?? [])])
    }
    const listeners = { dragover: over, dragleave: leave, drop }
    for (const [type, listener] of Object.entries(listeners)) addEventListener(type, listener as EventListener)
    return () => {
      for (const [type, listener] of Object.entries(listeners)) removeEventListener(type, listener as EventListener)
    }
  }, [])
  return isOver
}
