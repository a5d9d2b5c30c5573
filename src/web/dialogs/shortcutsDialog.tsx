// What the keyboard does.
import { SHORTCUTS } from '../state/shortcuts.js'
import { Dialog } from '../ui/dialog.js'

const FURTHER: readonly [string, string][] = [
  ['Enter', 'Send'],
  ['Shift+Enter', 'New line'],
  ['Esc', 'Stop the answer, close a dialog'],
  ['Arrows', 'In the heat map: move from expert to expert'],
]

export function ShortcutsDialog({ onClose }: { onClose(): void }) {
  const rows = [...SHORTCUTS.map(({ keys, label }) => [keys, label] as const), ...FURTHER]
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
