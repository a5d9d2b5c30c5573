// What the keyboard does.
import { useApp } from '../state/app.js'
import { keysOf, SHORTCUTS } from '../state/shortcuts.js'
import { Dialog } from '../ui/dialog.js'

const FURTHER: readonly [string, string][] = [
  ['Esc', 'Stop the answer, close a dialog'],
  ['Arrows', 'In the heat map: move from expert to expert'],
]

export function ShortcutsDialog({ onClose }: { onClose(): void }) {
  const isEnter = useApp().settings.value.sendKey === 'enter'
  const sending = [
    [isEnter ? 'Enter' : 'Ctrl+Enter', 'Send'],
    [isEnter ? 'Shift+Enter' : 'Enter', 'New line'],
  ] as const
  const rows = [...SHORTCUTS.map(shortcut => [keysOf(shortcut), shortcut.label] as const), ...sending, ...FURTHER]
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <dl class="shortcuts">
        {rows.map(([keys, label]) => (
          <div key={label}>
            <dt>
              {keys.split('+').map(key => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{label}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  )
}
