// A button with a menu: arrows move in it, Escape and a click elsewhere close it.
import { useEffect, useRef, useState } from 'preact/hooks'
import { Icon, type IconName } from './icons.js'

export interface MenuItem {
  readonly icon: IconName
  readonly label: string
  readonly isDangerous?: boolean
  act(): void
}

interface Props {
  readonly label: string
  readonly icon?: IconName
  readonly items: readonly MenuItem[]
}

export function MenuButton({ label, icon = 'dots', items }: Props) {
  const [isOpen, setOpen] = useState(false)
  const [isAbove, setAbove] = useState(false)
  const holder = useRef<HTMLDivElement>(null)
  const button = useRef<HTMLButtonElement>(null)

  useEffect(() => {
    if (!isOpen) return
    const close = (event: Event) => {
      if (!holder.current?.contains(event.target as Node)) setOpen(false)
    }
    document.addEventListener('pointerdown', close)
    holder.current?.querySelector<HTMLElement>('[role=menuitem]')?.focus()
    return () => document.removeEventListener('pointerdown', close)
  }, [isOpen])

  const onKeyDown = (event: KeyboardEvent) => {
    if (!isOpen) return
    const entries = [...(holder.current?.querySelectorAll<HTMLElement>('[role=menuitem]') ?? [])]
    const at = entries.indexOf(document.activeElement as HTMLElement)
    const move = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key]
    if (move !== undefined) {
      event.preventDefault()
      entries.at(move % entries.length)?.focus()
    }
    if (event.key === 'Escape' || event.key === 'Tab') {
      setOpen(false)
      if (event.key === 'Escape') button.current?.focus()
      event.stopPropagation()
    }
  }
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: keys for the menu inside
    <div class="menu-holder" ref={holder} onKeyDown={onKeyDown}>
      <button
        ref={button}
        type="button"
        class="icon-button"
        aria-label={label}
        title={label}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        onClick={() => {
          setAbove((button.current?.getBoundingClientRect().bottom ?? 0) > innerHeight * 0.6)
          setOpen(!isOpen)
        }}
      >
        <Icon name={icon} />
      </button>
      {isOpen && (
        <div class={`menu${isAbove ? ' above' : ''}`} role="menu" aria-label={label}>
          {items.map(item => (
            <button
              key={item.label}
              type="button"
              role="menuitem"
              tabIndex={-1}
              class={item.isDangerous ? 'dangerous' : ''}
              onClick={() => {
                setOpen(false)
                button.current?.focus()
                item.act()
              }}
            >
              <Icon name={item.icon} size={16} />
              {item.label}
            </button>
          ))}
        </div>
      )}
    </div>
  )
}
