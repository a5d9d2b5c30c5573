// A conversation: its messages, following the answer while it grows unless the reader has scrolled away.
import type { RefObject } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import type { ChatEngine } from '../engines/chatEngine.js'
import { useApp } from '../state/app.js'
import { branch } from '../state/conversation.js'
import * as format from '../ui/format.js'
import { Icon, Logo } from '../ui/icons.js'
import { LoadingBar } from '../ui/loadingBar.js'
import { Composer } from './composer.js'
import { MessageView } from './messageView.js'

const NEAR_END = 80 // pixels

/** The built-in model. */
const TOY = 'demo'

/** It follows these: 24, 21 and 19 of 24 stories are about their subject. */
const EXAMPLES = [
  'Tell me a story about a girl named Mia',
  'Tell me a story about a big red ball',
  'Tell me a story about a princess',
]

export function ChatView() {
  const app = useApp()
  const scroller = useRef<HTMLDivElement>(null)
  const foot = useTellHeight('--foot')
  const [isAway, setAway] = useState(false)
  const conversation = app.conversations.current.value
  const live = (conversation && app.answers.live.value.get(conversation.id)) ?? null
  const messages = conversation ? branch(conversation) : []

  const toEnd = () => {
    const element = scroller.current
    if (element) element.scrollTop = element.scrollHeight
  }
  // Another conversation is shown from its end.
  useEffect(() => {
    setAway(false)
    toEnd()
  }, [conversation?.id, messages.length])
  useEffect(() => {
    const element = scroller.current
    if (!element || isAway) return
    const watcher = new ResizeObserver(() => toEnd())
    for (const child of element.children) watcher.observe(child)
    return () => watcher.disconnect()
  }, [isAway])

  return (
    <section class="chat" aria-label="Chat">
      <div
        class="messages"
        ref={scroller}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: scrolled by key
        tabIndex={0}
        role="log"
        aria-live="off"
        aria-label="Conversation"
        onScroll={event => {
          const { scrollHeight, scrollTop, clientHeight } = event.currentTarget
          setAway(scrollHeight - scrollTop - clientHeight > NEAR_END)
        }}
      >
        <div class="column">
          {conversation !== null && conversation.system !== '' && <SystemPrompt text={conversation.system} />}
          {messages.length === 0 && <Welcome />}
          {conversation &&
            messages.map(message => (
              <MessageView
                key={message.id}
                conversation={conversation}
                message={message}
                live={live?.messageId === message.id ? live : null}
                isBusy={live !== null}
              />
            ))}
        </div>
      </div>
      <div class="chat-foot" ref={foot}>
        {isAway && (
          <button
            type="button"
            class="to-end"
            aria-label="Scroll to the end"
            onClick={() => {
              setAway(false)
              toEnd()
            }}
          >
            <Icon name="down" />
          </button>
        )}
        <Composer />
      </div>
    </section>
  )
}

function SystemPrompt({ text }: { text: string }) {
  return (
    <details class="system">
      <summary>System prompt</summary>
      <div>{text}</div>
    </details>
  )
}

function Welcome() {
  const app = useApp()
  const engine = app.engines.active.value
  const ask = (text: string) => {
    const conversation = app.conversations.current.value ?? app.conversations.begin(app.settings.value.system)
    void app.answers.send(conversation.id, text, conversation.head)
  }
  return (
    <div class="welcome">
      <Logo size={52} />
      <h1>What shall we talk about?</h1>
      <p>
        {engine ? introduction(engine) : 'Choose a model to begin. It can run on a server, or right here in this tab.'}
      </p>
      {engine === null && <ModelOffer />}
      {engine && <Examples onChoose={ask} />}
    </div>
  )
}

function introduction({ place, shape: { model, isLoaded, layers, experts, expertsPerToken } }: ChatEngine): string {
  const answers = `${model} answers ${place === 'tab' ? 'in this tab' : 'on the server'}`
  if (model === TOY)
    return `${answers}. It is a 21 MB toy that tells children's stories; you can choose a real model above.`
  if (!isLoaded) return `${answers}. It is loaded with your first message.`
  if (layers === 0) return `${answers}.`
  return `${answers}: ${layers} layers of ${experts} experts, ${expertsPerToken} of them per token.`
}

function Examples({ onChoose }: { onChoose(text: string): void }) {
  return (
    <div class="examples">
      {EXAMPLES.map(text => (
        <button key={text} type="button" onClick={() => onChoose(text)}>
          {text}
        </button>
      ))}
    </div>
  )
}

/** Where there is no model yet: one click to the one that this page can run, or to the choice. */
function ModelOffer() {
  const app = useApp()
  const { engines } = app
  const tab = engines.tab.value
  if (tab.status === 'loading') return <LoadingBar progress={tab.progress} />
  if (engines.server.value.status === 'connecting') return null
  const [entry] = engines.models.value
  return (
    <div class="row">
      {entry && (
        <button type="button" class="button primary" onClick={() => void engines.load(entry)}>
          Run {entry.name} in this tab ({format.bytes(entry.residentBytes)})
        </button>
      )}
      <button type="button" class="button" onClick={() => (app.dialog.value = 'model')}>
        Choose a model
      </button>
      {tab.status === 'failed' && (
        <p class="problem" role="alert">
          {tab.failure.message}
        </p>
      )}
    </div>
  )
}

/** Tells the style sheet how high an element is, by a variable: what floats above it must know. */
function useTellHeight(variable: string): RefObject<HTMLDivElement | null> {
  const element = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const { style } = document.documentElement
    const watcher = new ResizeObserver(() => style.setProperty(variable, `${element.current?.offsetHeight ?? 0}px`))
    watcher.observe(element.current as HTMLElement)
    return () => {
      watcher.disconnect()
      style.removeProperty(variable)
    }
  }, [])
  return element
}
