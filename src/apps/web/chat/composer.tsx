// Where the user writes. What is typed and attached survives a reload, a failed answer and a look at another conversation.
import { useEffect, useRef, useState } from 'preact/hooks'
import { useApp } from '../state/app.js'
import { attachFiles } from '../state/attachments.js'
import { Icon } from '../ui/icons.js'
import { AttachmentList } from './attachmentList.js'
import { ContextMeter } from './contextMeter.js'
import { isSendKey } from './sendKey.js'

export function Composer() {
  const app = useApp()
  const field = useRef<HTMLTextAreaElement>(null)
  const picker = useRef<HTMLInputElement>(null)
  const id = app.conversations.currentId.value
  const { drafts } = app.conversations
  const [text, setText] = useState(() => drafts.text(id))
  const [files, setFiles] = useState(() => drafts.files(id))
  const focusAsked = app.focusComposer.value
  const live = id === null ? undefined : app.answers.live.value.get(id)
  const settings = app.settings.value
  const isEmpty = text.trim() === '' && files.length === 0

  // Another conversation, or a draft put there for the user.
  useEffect(() => {
    setText(drafts.text(id))
    setFiles(drafts.files(id))
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
    drafts.setText(id, value)
  }
  const attach = async (added: Iterable<File>) => {
    const { attachments, problem } = await attachFiles(added, () => drafts.files(id))
    drafts.setFiles(id, attachments)
    if (app.conversations.currentId.value === id) setFiles(attachments)
    if (problem !== null) app.notify(problem)
  }
  const remove = (index: number) => {
    const left = files.filter((_, i) => i !== index)
    drafts.setFiles(id, left)
    setFiles(left)
    field.current?.focus()
  }
  const isDropping = useFileDrop(attach)
  const send = () => {
    if (isEmpty || live) return
    const conversation = app.conversations.current.value ?? app.conversations.begin(settings.system)
    drafts.clear(id)
    setText('')
    setFiles([])
    void app.answers.send(conversation.id, text.trim(), conversation.head, files)
  }
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Escape' && live) live.stop()
    if (!isSendKey(event, settings)) return
    event.preventDefault()
    send()
  }
  const onPaste = (event: ClipboardEvent) => {
    const pasted = [...(event.clipboardData?.files ?? [])]
    // Programs that copy text may add a picture of it.
    if (pasted.length === 0 || event.clipboardData?.types.includes('text/plain')) return
    event.preventDefault()
    void attach(pasted)
  }

  return (
    <form
      class={`composer${isDropping ? ' dropping' : ''}`}
      onSubmit={event => {
        event.preventDefault()
        send()
      }}
    >
      <AttachmentList attachments={files} onRemove={remove} />
      <textarea
        ref={field}
        id="composer"
        rows={1}
        placeholder={isDropping ? 'Drop text files here' : 'Ask anything'}
        aria-label="Your message"
        value={text}
        onInput={event => write(event.currentTarget.value)}
        onKeyDown={onKeyDown}
        onPaste={onPaste}
      />
      <div class="composer-bar">
        <button
          type="button"
          class="chip round"
          aria-label="Attach text files"
          title="Attach text files"
          onClick={() => picker.current?.click()}
        >
          <Icon name="attach" size={16} />
        </button>
        <input
          ref={picker}
          type="file"
          multiple
          class="visually-hidden"
          aria-label="Files to attach"
          tabIndex={-1}
          onChange={event => {
            void attach([...(event.currentTarget.files ?? [])])
            event.currentTarget.value = ''
          }}
        />
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
        <ContextMeter />
        {live ? (
          <button type="button" class="send stop" aria-label="Stop the answer" title="Stop (Esc)" onClick={live.stop}>
            <Icon name="stop" />
          </button>
        ) : (
          <button type="submit" class="send" aria-label="Send" title="Send" disabled={isEmpty}>
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  )
}

// Files that are dropped anywhere on the page. Without this the browser would leave the page and show the file.

/** Whether files are being dragged over the page. */
function useFileDrop(onDrop: (files: readonly File[]) => void): boolean {
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
