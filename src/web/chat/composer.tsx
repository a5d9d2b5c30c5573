// Where the user writes. What is typed survives a reload, a failed answer and a look at another conversation.
import { useEffect, useRef, useState } from 'preact/hooks'
import { useApp } from '../state/app.js'
import { Icon } from '../ui/icons.js'
import { isSendKey } from './sendKey.js'

export function Composer() {
  const app = useApp()
  const field = useRef<HTMLTextAreaElement>(null)
  const id = app.conversations.currentId.value
  const [text, setText] = useState(() => app.conversations.draft(id))
  const focusAsked = app.focusComposer.value
  const live = id === null ? undefined : app.answers.live.value.get(id)
  const settings = app.settings.value

  // Another conversation, or a draft put there for the user.
  useEffect(() => {
    setText(app.conversations.draft(id))
    if (matchMedia('(hover: hover)').matches || focusAsked > 0) field.current?.focus()
  }, [id, focusAsked])

  // Grows with its text.
  useEffect(() => {
    const element = field.current
    if (!element) return
    element.style.height = 'auto'
    element.style.height = `${Math.min(element.scrollHeight, innerHeight * 0.4)}px`
  }, [text])

  const write = (value: string) => {
    setText(value)
    app.conversations.setDraft(id, value)
  }
  const send = () => {
    const wanted = text.trim()
    if (wanted === '' || live) return
    const conversation = app.conversations.current.value ?? app.conversations.begin(settings.system)
    app.conversations.setDraft(id, '')
    setText('')
    void app.answers.send(conversation.id, wanted, conversation.head)
  }
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Escape' && live) live.stop()
    if (!isSendKey(event, settings)) return
    event.preventDefault()
    send()
  }

  return (
    <form
      class="composer"
      onSubmit={event => {
        event.preventDefault()
        send()
      }}
    >
      <textarea
        ref={field}
        id="composer"
        rows={1}
        placeholder="Ask anything"
        aria-label="Your message"
        value={text}
        onInput={event => write(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <div class="composer-bar">
        <button
          type="button"
          class={`chip${settings.thinking ? ' on' : ''}`}
          aria-pressed={settings.thinking}
          title="Let the model think before it answers"
          onClick={() => app.change({ thinking: !settings.thinking })}
        >
          <Icon name="think" size={16} />
          Think
        </button>
        <button type="button" class="chip" onClick={() => (app.dialog.value = 'settings')}>
          <Icon name="settings" size={16} />
          Settings
        </button>
        <span class="grow" />
        {live ? (
          <button type="button" class="send stop" aria-label="Stop the answer" title="Stop (Esc)" onClick={live.stop}>
            <Icon name="stop" />
          </button>
        ) : (
          <button type="submit" class="send" aria-label="Send" title="Send" disabled={text.trim() === ''}>
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  )
}
