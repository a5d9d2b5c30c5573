// A modal dialog of the browser's own kind: focus stays inside, Escape closes it, and focus goes back afterwards. It begins
// in the field that is marked with `data-focus`, or on no control at all: Enter must not close what was just opened.
import type { ComponentChildren } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { Icon } from './icons.js'

interface Props {
  readonly title: string
  readonly children: ComponentChildren
  onClose(): void
}

export function Dialog({ title, children, onClose }: Props) {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null
    dialog.current?.showModal()
    const body = dialog.current?.querySelector<HTMLElement>('.dialog-body')
    const field = dialog.current?.querySelector<HTMLElement>('[data-focus]') ?? body
    field?.focus()
    return () => before?.focus?.()
  }, [])
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape does the same
    <dialog
      ref={dialog}
      class="dialog"
      aria-labelledby="dialog-title"
      onClose={onClose}
      onClick={event => {
        if (event.target === dialog.current) onClose()
      }}
    >
      <div class="dialog-body" tabIndex={-1}>
        <header>
          <h2 id="dialog-title">{title}</h2>
          <button type="button" class="icon-button" aria-label="Close" onClick={onClose}>
            <Icon name="close" />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  )
}
