// Answers that are being written: one per conversation at most. The text of a live answer has signals of its own, so that
// only its message is drawn again; the conversation gets it every now and then and at the end.
import { type Signal, signal } from '@preact/signals'
import { type ChatEngine, EngineFailure } from '../engines/chatEngine.js'
import { type AnswerStage, nextStage } from './answerStage.js'
import { type Attachment, promptText } from './attachments.js'
import { type AnswerUsage, append, branch, change, type Message, newId } from './conversation.js'
import type { Conversations } from './conversations.js'
import type { HeatWatch } from './engineFeed.js'
import type { Settings } from './settings.js'

const DRAW_MS = 40
const KEEP_MS = 2000

export interface LiveAnswer {
  readonly messageId: string
  readonly text: Signal<string>
  readonly thinking: Signal<string>
  readonly isThinking: Signal<boolean>
  readonly startedAt: number // performance.now()
  readonly stage: Signal<AnswerStage | null> // until the first token
  /** The page goes, and what there is of the answer stays. */
  leave(): void
  stop(): void
}

export class Answers {
  /** By conversation. */
  readonly live = signal<ReadonlyMap<string, LiveAnswer>>(new Map())

  constructor(
    private readonly conversations: Conversations,
    private readonly settings: Signal<Settings>,
    private readonly engine: () => ChatEngine | null,
    /** For people who do not see the screen. */
    private readonly announce: (line: string) => void,
    private readonly warn: (line: string) => void,
    private readonly record: (engine: ChatEngine) => HeatWatch,
  ) {}

  /** Sends what the user wrote, after `parent`: the end of the branch, or the message before an edited one. */
  async send(
    conversationId: string,
    text: string,
    parent: string | null,
    attachments: readonly Attachment[] = [],
  ): Promise<void> {
    const files = attachments.length > 0 && { attachments }
    const message: Message = { id: newId(), parent, role: 'user', text, createdAt: Date.now(), ...files }
    this.conversations.update(conversationId, conversation => append(conversation, message))
    await this.answer(conversationId, message.id)
  }

  /** Writes an answer to a message; beside others that it has already. */
  async answer(conversationId: string, parent: string): Promise<void> {
    if (this.live.value.has(conversationId)) return
    const engine = this.engine()
    const by = engine
      ? `${engine.shape.model} · ${engine.place === 'tab' ? 'in this tab' : 'on the server'}`
      : undefined
    const message: Message = { id: newId(), parent, role: 'assistant', text: '', createdAt: Date.now(), by }
    this.conversations.update(conversationId, conversation => append(conversation, message))
    await this.write(conversationId, message, engine)
  }

  /** Goes on with an answer that was cut off, where it ended. If that fails it stays as it was. */
  async goOn(conversationId: string, message: Message): Promise<void> {
    if (this.live.value.has(conversationId) || !isBegun(message)) return
    this.conversations.update(conversationId, conversation => change(conversation, message.id, { end: undefined }))
    await this.write(conversationId, message, this.engine())
  }

  private async write(conversationId: string, message: Message, engine: ChatEngine | null): Promise<void> {
    const { id, parent, text: begun, thinking = '' } = message
    const controller = new AbortController()
    const draft = new AnswerDraft(message)
    const keep = (fields: Partial<Message>) =>
      this.conversations.update(conversationId, conversation =>
        change(conversation, id, { ...draft.fields(), ...fields }),
      )
    const live: LiveAnswer = {
      messageId: id,
      text: draft.shownText,
      thinking: draft.shownThinking,
      isThinking: draft.isThinking,
      startedAt: performance.now(),
      stage: signal(null),
      leave: () => keep({ end: 'left' }),
      stop: () => controller.abort(),
    }
    this.setLive(conversationId, live)
    const keeping = setInterval(() => keep({}), KEEP_MS)
    const heat = engine && this.record(engine)
    try {
      if (engine === null) throw new EngineFailure('unreachable', 'There is no model to ask yet.')
      const conversation = this.conversations.get(conversationId)
      if (conversation === null) return
      const system = conversation.system.trim()
      const messages = [
        ...(system === '' ? [] : [{ role: 'system' as const, content: system }]),
        ...branch(conversation, parent).map(each => ({
          role: each.role,
          content: promptText(each.text, each.attachments),
        })),
      ]
      let end: Message['end'] = 'stop'
      const request = { messages, settings: this.settings.value, begun, begunThinking: thinking }
      for await (const event of engine.chat(request, controller.signal)) {
        if (event.type === 'text') draft.addText(event.text)
        else if (event.type === 'thinking') draft.addThinking(event.text)
        else if (event.type === 'usage') draft.usage = event.usage
        else if (event.type === 'progress') live.stage.value = nextStage(live.stage.value, event, performance.now())
        else end = event.reason
      }
      keep({ end })
      this.announce('The answer is complete.')
    } catch (error) {
      if (controller.signal.aborted) {
        keep({ end: 'stopped' })
        this.announce('The answer was stopped.')
      } else if (isBegun(message)) {
        keep({ end: message.end })
        this.warn(failureOf(error).message)
      } else {
        keep({ end: 'failed', failure: failureOf(error) }) // which its message announces
      }
    } finally {
      clearInterval(keeping)
      draft.close()
      this.setLive(conversationId, null)
      void this.keepHeat(conversationId, id, heat)
      await this.conversations.flush()
    }
  }

  /** Its last frames come after its last token. */
  private async keepHeat(conversationId: string, id: string, watch: HeatWatch | null): Promise<void> {
    const heat = await watch?.end()
    if (heat) this.conversations.update(conversationId, conversation => change(conversation, id, { heat }))
  }

  stop(conversationId: string): void {
    this.live.value.get(conversationId)?.stop()
  }

  private setLive(conversationId: string, answer: LiveAnswer | null): void {
    const live = new Map(this.live.value)
    if (answer === null) live.delete(conversationId)
    else live.set(conversationId, answer)
    this.live.value = live
  }
}

/** There is something that an answer can go on from. */
export function isBegun({ text, thinking }: Message): boolean {
  return text !== '' || !!thinking
}

function failureOf(error: unknown) {
  if (error instanceof EngineFailure) return { kind: error.kind, message: error.message }
  return { kind: 'other' as const, message: error instanceof Error ? error.message : String(error) }
}

/** What an answer cost that was written in two goes. The prompt of the second holds what came before. */
function inAll(before: AnswerUsage | undefined, now: AnswerUsage | undefined): AnswerUsage | undefined {
  if (before === undefined || now === undefined) return now ?? before
  return {
    ...now,
    promptTokens: before.promptTokens || now.promptTokens,
    cachedTokens: before.cachedTokens,
    answerTokens: before.answerTokens + now.answerTokens,
    answerSeconds: before.answerSeconds + now.answerSeconds,
    firstSeconds: before.firstSeconds,
  }
}

/** Text as it comes, shown a few times a second: tokens may come faster than a screen draws. */
class AnswerDraft {
  readonly shownText: Signal<string>
  readonly shownThinking: Signal<string>
  readonly isThinking = signal(false)
  usage: AnswerUsage | undefined
  private text: string
  private thinking: string
  private thinkingStarted = 0
  private thinkingSeconds: number | undefined
  private timer: ReturnType<typeof setTimeout> | null = null
  private readonly begun = performance.now()
  private firstAt = 0
  private pieces = 0

  constructor(private readonly before: Message) {
    this.text = before.text
    this.thinking = before.thinking ?? ''
    this.thinkingSeconds = before.thinkingSeconds
    this.shownText = signal(this.text)
    this.shownThinking = signal(this.thinking)
  }

  addText(text: string): void {
    if (this.isThinking.value) {
      this.isThinking.value = false
      this.thinkingSeconds = (performance.now() - this.thinkingStarted) / 1000
    }
    this.text += text
    this.added()
  }

  addThinking(text: string): void {
    if (this.thinkingStarted === 0) {
      this.thinkingStarted = performance.now() - (this.thinkingSeconds ?? 0) * 1000
      this.thinkingSeconds = undefined
    }
    this.isThinking.value = true
    this.thinking += text
    this.added()
  }

  /** What the message holds by now. An answer that was cut off counts its own pieces. */
  fields(): Partial<Message> {
    const { text, thinking, thinkingSeconds } = this
    const isCut = this.usage === undefined && this.pieces > 0
    const usage = isCut
      ? {
          promptTokens: 0,
          cachedTokens: 0,
          answerTokens: this.pieces,
          promptSeconds: (this.firstAt - this.begun) / 1000,
          answerSeconds: (performance.now() - this.firstAt) / 1000,
        }
      : this.usage && { ...this.usage, ...(this.firstAt > 0 && { firstSeconds: (this.firstAt - this.begun) / 1000 }) }
    return {
      text,
      usage: inAll(this.before.usage, usage),
      ...(thinking !== '' && { thinking, thinkingSeconds: thinkingSeconds ?? this.soFar() }),
    }
  }

  close(): void {
    if (this.timer) clearTimeout(this.timer)
  }

  private soFar(): number {
    return (performance.now() - this.thinkingStarted) / 1000
  }

  private added(): void {
    this.pieces++
    this.firstAt ||= performance.now()
    this.timer ??= setTimeout(() => {
      this.timer = null
      this.shownText.value = this.text
      this.shownThinking.value = this.thinking
    }, DRAW_MS)
  }
}
