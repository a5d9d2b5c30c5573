// Settings: the system prompt, how tokens are chosen, and the page itself. A number left empty is the model's own.
import { useApp } from '../state/app.js'
import { DEFAULT_SETTINGS, NUMBER_SETTINGS, type NumberSetting } from '../state/settings.js'
import { Dialog } from '../ui/dialog.js'

export function SettingsDialog({ onClose }: { onClose(): void }) {
  const app = useApp()
  const settings = app.settings.value
  const conversation = app.conversations.current.value
  const isPointed = matchMedia('(hover: hover)').matches // else a keyboard would come up and hide the settings
  const setSystem = (system: string) => {
    if (conversation) app.conversations.update(conversation.id, current => ({ ...current, system }))
    else app.change({ system })
  }
  return (
    <Dialog title="Settings" onClose={onClose}>
      <section>
        <label class="field">
          <span>System prompt {conversation ? 'of this chat' : 'of new chats'}</span>
          <textarea
            data-focus={isPointed ? true : undefined}
            rows={4}
            placeholder="How the model should answer"
            value={conversation ? conversation.system : settings.system}
            onInput={event => setSystem(event.currentTarget.value)}
          />
        </label>
        {conversation && conversation.system !== settings.system && (
          <button type="button" class="link" onClick={() => app.change({ system: conversation.system })}>
            Use for new chats too
          </button>
        )}
      </section>
      <section>
        <h3>Answers</h3>
        <div class="number-grid">
          {NUMBER_SETTINGS.map(setting => (
            <NumberField key={setting.key} setting={setting} />
          ))}
        </div>
        <label class="switch">
          <input
            type="checkbox"
            checked={settings.thinking}
            onChange={event => app.change({ thinking: event.currentTarget.checked })}
          />
          <span>Think before answering</span>
        </label>
      </section>
      <section>
        <h3>Page</h3>
        <label class="field inline">
          <span>Colours</span>
          <select
            value={settings.theme}
            onChange={event => app.change({ theme: event.currentTarget.value as typeof settings.theme })}
          >
            <option value="system">Like the system</option>
            <option value="light">Light</option>
            <option value="dark">Dark</option>
          </select>
        </label>
        <label class="field inline">
          <span>Send with</span>
          <select
            value={settings.sendKey}
            onChange={event => app.change({ sendKey: event.currentTarget.value as typeof settings.sendKey })}
          >
            <option value="enter">Enter (Shift+Enter for a new line)</option>
            <option value="ctrl-enter">Ctrl+Enter</option>
          </select>
        </label>
        <label class="field inline">
          <span>Models in this tab run on</span>
          <select
            value={settings.tabBackend}
            onChange={event => app.change({ tabBackend: event.currentTarget.value as typeof settings.tabBackend })}
          >
            <option value="auto">Whatever is fastest here</option>
            <option value="webgpu">The GPU (WebGPU)</option>
            <option value="wasm">The CPU (WASM)</option>
          </select>
        </label>
      </section>
      <footer class="row end">
        <button
          type="button"
          class="button quiet"
          onClick={() => app.change({ ...DEFAULT_SETTINGS, system: settings.system, theme: settings.theme })}
        >
          Reset
        </button>
        <button type="button" class="button primary" onClick={onClose}>
          Done
        </button>
      </footer>
    </Dialog>
  )
}

function NumberField({ setting }: { setting: NumberSetting }) {
  const app = useApp()
  const { key, label, hint, min, max, step } = setting
  const value = app.settings.value[key]
  const set = (text: string) => {
    const number = text === '' ? null : Number(text)
    if (number !== null && (!Number.isFinite(number) || number < min || number > max)) return
    app.change({ [key]: number === null || step < 1 ? number : Math.round(number) })
  }
  return (
    <label class="field">
      <span>{label}</span>
      <input
        type="number"
        inputMode={step < 1 ? 'decimal' : 'numeric'}
        min={min}
        max={max}
        step={step}
        placeholder="model’s own"
        title={hint}
        value={value ?? ''}
        onInput={event => set(event.currentTarget.value)}
        onBlur={event => {
          event.currentTarget.value = value === null ? '' : String(value)
        }}
      />
      <small>{hint}</small>
    </label>
  )
}
