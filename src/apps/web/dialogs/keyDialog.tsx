// Asks for the server's key, once per tab.
import { useState } from 'preact/hooks'
import { useApp } from '../state/app.js'
import { Dialog } from '../ui/dialog.js'

export function KeyDialog({ onClose }: { onClose(): void }) {
  const app = useApp()
  const [key, setKey] = useState('')
  const [problem, setProblem] = useState<string | null>(null)
  const submit = async (event: Event) => {
    event.preventDefault()
    await app.engines.useKey(key.trim())
    const { value } = app.engines.server
    if (value.status === 'ready') onClose()
    else {
      setProblem(
        value.status === 'failed' && value.failure.kind !== 'unauthorized'
          ? value.failure.message
          : 'This key is wrong.',
      )
    }
  }
  return (
    <Dialog title="API key" onClose={onClose}>
      <form onSubmit={submit}>
        <p>This server needs a key. The page keeps it until you close this tab.</p>
        <label class="field">
          <span>Key</span>
          <input
            type="password"
            data-focus
            autocomplete="off"
            value={key}
            aria-invalid={problem !== null}
            aria-describedby="key-problem"
            onInput={event => setKey(event.currentTarget.value)}
          />
        </label>
        <p id="key-problem" class="problem" role="alert">
          {problem}
        </p>
        <footer class="row end">
          <button type="button" class="button quiet" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="button primary" disabled={key.trim() === ''}>
            Use this key
          </button>
        </footer>
      </form>
    </Dialog>
  )
}
