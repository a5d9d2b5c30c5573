// One message: what was said, how it was thought, what it cost, and what can be done with it.
import { useEffect, useState } from 'preact/hooks'
import { isBegun, type LiveAnswer } from '../state/answers.js'
import { useApp } from '../state/app.js'
import { type Conversation, type Message, showBranch, siblings } from '../state/conversation.js'
import * as format from '../ui/format.js'
import { Icon } from '../ui/icons.js'
import { AttachmentList } from './attachmentList.js'
import { FailureNotice } from './failureNotice.js'
import { AnswerHeat } from './heatStrip.js'
import { copyText, MarkdownText } from './markdownText.js'
import { isSendKey } from './sendKey.js'
import { Waiting } from './waiting.js'

const OTHER_TAB_MS = 5000 // a tab keeps what it writes every two seconds

interface Props {
  readonly conversation: Conversation
  readonly message: Message
  readonly live: LiveAnswer | null // where this message is being written
  readonly isBusy: boolean
}

export function MessageView(props: Props) {
  return props.message.role === 'user' ? <UserMessage {...props} /> : <AssistantMessage {...props} />
}

function UserMessage({ conversation, message, isBusy }: Props) {
  const app = useApp()
  const [edited, setEdited] = useState<string | null>(null)
  if (edited !== null) {
    const submit = (event: Event) => {
      event.preventDefault()
      if (edited.trim() === '' || isBusy) return
      setEdited(null)
      void app.answers.send(conversation.id, edited.trim(), message.parent, message.attachments)
    }
    return (
      <article class="message user" aria-label="Your message">
        <form class="edit" onSubmit={submit}>
          <AttachmentList attachments={message.attachments ?? []} />
          <textarea
            aria-label="Edit your message"
            value={edited}
            rows={Math.min(12, edited.split('\n').length + 1)}
            ref={element => element?.focus()}
            onInput={event => setEdited(event.currentTarget.value)}
            onKeyDown={event => {
              if (event.key === 'Escape') setEdited(null)
              if (isSendKey(event, app.settings.value)) submit(event)
            }}
          />
          <div class="row end">
            <button type="button" class="button quiet" onClick={() => setEdited(null)}>
              Cancel
            </button>
            <button type="submit" class="button primary" disabled={isBusy || edited.trim() === ''}>
              Send as a new branch
            </button>
          </div>
        </form>
      </article>
    )
  }
  return (
    <article class="message user" aria-label="Your message">
      <AttachmentList attachments={message.attachments ?? []} />
      {message.text !== '' && <FoldedText text={message.text} />}
      <div class="actions">
        <Branches conversation={conversation} message={message} />
        <CopyButton text={message.text} />
        <button
          type="button"
          class="icon-button"
          aria-label="Edit this message"
          title="Edit"
          disabled={isBusy}
          onClick={() => setEdited(message.text)}
        >
          <Icon name="edit" size={16} />
        </button>
      </div>
    </article>
  )
}

function AssistantMessage({ conversation, message, live, isBusy }: Props) {
  const app = useApp()
  const text = live ? live.text.value : message.text
  const thinking = live ? live.thinking.value : message.thinking
  const isThinking = live?.isThinking.value ?? false
  return (
    <article class="message assistant" aria-label="Answer" aria-busy={live !== null}>
      {thinking && <Thinking text={thinking} seconds={message.thinkingSeconds} isLive={isThinking} />}
      {text !== '' && <MarkdownText text={text} isGrowing={live !== null} />}
      {live !== null && text === '' && !isThinking && <Waiting live={live} />}
      {live === null && text === '' && message.end === 'stop' && <p class="hint">The model said nothing.</p>}
      {live === null && <CutOff conversation={conversation} message={message} isBusy={isBusy} />}
      {message.end === 'failed' && message.failure && (
        <FailureNotice conversation={conversation} message={message} failure={message.failure} />
      )}
      {live === null && (
        <div class="actions">
          <Branches conversation={conversation} message={message} />
          <CopyButton text={message.text} />
          <button
            type="button"
            class="icon-button"
            aria-label="Answer again"
            title="Answer again"
            disabled={isBusy || message.parent === null}
            onClick={() => message.parent && void app.answers.answer(conversation.id, message.parent)}
          >
            <Icon name="again" size={16} />
          </button>
          {message.heat && <AnswerHeat strip={message.heat} />}
          <UsageLine message={message} />
        </div>
      )}
    </article>
  )
}

/** An answer that has not come to its own end can go on, once there is some of it. */
function CutOff({ conversation, message, isBusy }: Omit<Props, 'live'>) {
  const app = useApp()
  const { updatedAt } = conversation
  const [, lookAgain] = useState(0)
  const isElsewhere = message.end === undefined && Date.now() - updatedAt < OTHER_TAB_MS
  // A tab that died tells nobody.
  useEffect(() => {
    const timer = isElsewhere ? setTimeout(() => lookAgain(updatedAt), OTHER_TAB_MS) : undefined
    return () => clearTimeout(timer)
  }, [isElsewhere, updatedAt])
  const hint = isElsewhere ? 'Being written in another tab …' : whyCutOff(message)
  if (hint === null) return null
  return (
    <div class="row cut-off">
      <p class="hint">{hint}</p>
      {isBegun(message) && message.parent !== null && !isElsewhere && (
        <button
          type="button"
          class="chip"
          disabled={isBusy}
          onClick={() => void app.answers.goOn(conversation.id, message)}
        >
          <Icon name="more" size={16} />
          Continue
        </button>
      )}
    </div>
  )
}

function whyCutOff(message: Message): string | null {
  switch (message.end) {
    case undefined:
    case 'left':
      return 'This answer was interrupted.'
    case 'stopped':
      return 'Stopped.'
    case 'length':
      return 'The answer reached its token limit.'
    case 'failed':
      return isBegun(message) ? 'The answer broke off.' : null
    default:
      return null
  }
}

function Thinking({ text, seconds, isLive }: { text: string; seconds?: number; isLive: boolean }) {
  const label = isLive ? 'Thinking …' : seconds === undefined ? 'Thought' : `Thought for ${format.seconds(seconds)}`
  return (
    <details class="thinking">
      <summary>
        <Icon name="think" size={16} />
        <span class={isLive ? 'shimmer' : ''}>{label}</span>
        <Icon name="down" size={16} />
      </summary>
      <div class="thinking-text">{text.trim()}</div>
    </details>
  )
}

function UsageLine({ message: { usage, by } }: { message: Message }) {
  if (usage === undefined) return null
  const speed = format.rate(usage.answerTokens, usage.answerSeconds)
  const prompt =
    usage.promptTokens > 0
      ? `${format.count(usage.promptTokens)} in the prompt${usage.cachedTokens > 0 ? `, ${format.count(usage.cachedTokens)} cached` : ''}`
      : null
  const first = usage.firstSeconds === undefined ? null : `first after ${format.seconds(usage.firstSeconds)}`
  const parts = [`${format.count(usage.answerTokens)} tokens`, speed, first, prompt].filter(part => part !== null)
  return (
    <span class="usage" title={by}>
      {parts.join(' · ')}
    </span>
  )
}

function Branches({ conversation, message }: { conversation: Conversation; message: Message }) {
  const app = useApp()
  const all = siblings(conversation, message)
  if (all.length < 2) return null
  const at = all.findIndex(({ id }) => id === message.id)
  const go = (step: number) =>
    app.conversations.update(conversation.id, current => showBranch(current, all[at + step].id))
  const what = message.role === 'user' ? 'version' : 'answer'
  return (
    <fieldset class="branches" aria-label={`${what} ${at + 1} of ${all.length}`}>
      <button
        type="button"
        class="icon-button"
        aria-label={`Previous ${what}`}
        disabled={at === 0}
        onClick={() => go(-1)}
      >
        <Icon name="left" size={16} />
      </button>
      <span>
        {at + 1}/{all.length}
      </span>
      <button
        type="button"
        class="icon-button"
        aria-label={`Next ${what}`}
        disabled={at === all.length - 1}
        onClick={() => go(1)}
      >
        <Icon name="right" size={16} />
      </button>
    </fieldset>
  )
}

function CopyButton({ text }: { text: string }) {
  const [isCopied, setCopied] = useState(false)
  const copy = async () => {
    setCopied(await copyText(text))
    setTimeout(() => setCopied(false), 1500)
  }
  return (
    <button type="button" class="icon-button" aria-label={isCopied ? 'Copied' : 'Copy'} title="Copy" onClick={copy}>
      <Icon name={isCopied ? 'check' : 'copy'} size={16} />
    </button>
  )
}

/** What the user wrote: a long text shows its beginning, and the rest when asked for. */
const LONG_CHARACTERS = 1500
const LONG_LINES = 16

function FoldedText({ text }: { text: string }) {
  const [isOpen, setOpen] = useState(false)
  if (!isLong(text)) return <div class="bubble">{text}</div>
  return (
    <div class="bubble long">
      <div class={isOpen ? '' : 'folded'}>{isOpen ? text : beginningOf(text)}</div>
      <button type="button" class="link fold" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        {isOpen ? 'Show less' : `Show all ${text.length.toLocaleString('en')} characters`}
      </button>
    </div>
  )
}

function isLong(text: string): boolean {
  return text.length > LONG_CHARACTERS || text.split('\n', LONG_LINES + 1).length > LONG_LINES
}

/** No more than can be seen: a page of a book is not laid out to be hidden. */
function beginningOf(text: string): string {
  return text.slice(0, LONG_CHARACTERS).split('\n', LONG_LINES).join('\n')
}
