// From chat messages to a prompt: its token ids, and the positions in it that are worth keeping a state at. Positions
// lie where the ids on both sides do not depend on each other: at a control token, or one token before a boundary that
// a merge could cross. Evaluates nothing; rendering and encoding happen in workers, so that nothing waits for them.
import { ContextLimitError, OptionError } from '../base/errors.js'
import { StoreWait } from '../stores/storeWait.js'
import type { PreparedChat } from '../text/dialects/dialect.js'
import type { ChatRequest, Place, RenderedChat } from '../text/template/chatRenderer.js'
import type { ChatTemplate } from '../text/template/chatTemplate.js'
import { type PlainMessage, wellFormed } from '../text/template/messages.js'
import type { TextWorkers } from '../text/workers/textWorkers.js'
import type { AnswerMemory } from './memory/rawAnswerCache.js'
import type { Landmark } from './prefixCache.js'
import { commonPrefix } from './prefixMatch.js'
import type { Landing, Prompt } from './prompt.js'

export interface PromptRequest extends ChatRequest {
  /** Where the caller asks for breakpoints. */
  readonly breakpoints?: readonly Place[]
  /** What the answer begins with. */
  readonly prefill?: string
  /** What its thinking begins with. */
  readonly thinkingPrefill?: string
  /** Whose answers may be remembered in it; '' for all. */
  readonly scope?: string
}

type Encoded = Pick<Prompt, 'ids' | 'sections' | 'hasOwnIds'>

const BREAKPOINT: Landmark = 'breakpoint'
const MAX_BREAKPOINTS = 8 // hints: each costs another look at the text, and the last ones are worth most

export class PromptBuilder {
  constructor(
    private readonly workers: TextWorkers,
    private readonly template: ChatTemplate,
    private readonly answers: AnswerMemory,
    private readonly contextLength: number,
    /** Turns before the last whose ends are looked for, where there is a store that may have states of them. */
    private readonly turns = 0,
  ) {}

  /** Throws where it leaves no room in the context for an answer. */
  async build(request: PromptRequest, signal?: AbortSignal): Promise<Prompt> {
    const { breakpoints = [], prefill = '', thinkingPrefill = '', scope = '', ...rest } = request
    const wait = new StoreWait()
    const { chat, places: moved } = await this.prepare(rest, scope, wait, signal)
    const asked = breakpoints.slice(-MAX_BREAKPOINTS).map(({ message, characters }) => {
      return { message: moved[message] ?? message, characters, landmark: BREAKPOINT }
    })
    const places = [...automaticPlaces(chat.messages), ...asked]
    const options = {
      places,
      nextTurn: true,
      turns: this.turns,
      prefill: wellFormed(prefill),
      thinkingPrefill: wellFormed(thinkingPrefill),
      maxTokens: this.contextLength - 1,
    }
    const rendered = await this.template.render(chat, options, signal)
    if ('atLeast' in rendered) throw this.tooLong(rendered.atLeast, true)
    checkPrefill(rendered, prefill)
    const encoded = await this.encode(rendered, scope, wait, signal)
    const at = async (offset: number, landmark: Landmark): Promise<Landing> => ({
      position: await this.position(rendered, encoded, offset, signal),
      landmark,
    })
    const all = await Promise.all(rendered.offsets.map((offset, index) => at(offset, places[index].landmark)))
    const hasSystem = chat.messages[0]?.role === 'system' || (chat.tools?.length ?? 0) > 0
    const isWorthIt = ({ position, landmark }: Landing) =>
      landmark !== 'system' || hasSystem || position >= LEAST_SYSTEM
    const landings = all.filter(isWorthIt)
    landings.push(await at(rendered.nextTurn, 'promptEnd'), { position: encoded.ids.length, landmark: 'prompt' })
    const { text, mark, insideThinking } = rendered
    const boundaries = await this.boundaries(rendered, encoded, signal)
    const isRepeated: Prompt['isRepeated'] = async (answer, written, signal) => {
      const messages: PlainMessage[] = [...chat.messages, answer, { role: 'tool', content: 'x' }]
      const next = await this.template.render({ ...chat, messages }, {}, signal)
      return 'text' in next && next.mark === mark && next.text.startsWith(text + written)
    }
    return { ...encoded, text, mark, insideThinking, landings: distinct(landings), boundaries, scope, wait, isRepeated }
  }

  /**
   * Positions at which requests for earlier answers of this chat ended, and those answers. What follows such a place now
   * may be encoded together with it, where it was an end before: then the position before it is meant.
   */
  private async boundaries(rendered: RenderedChat, encoded: Encoded, signal?: AbortSignal): Promise<number[]> {
    const found = new Set<number>()
    for (const { opening, end } of rendered.turns) {
      const position = await this.position(rendered, encoded, opening, signal)
      found.add(position).add(position + 1)
      const ends = encoded.sections.filter(({ start }) => start < end).slice(-2)
      for (const { token } of ends) found.add(token)
    }
    return [...found]
  }

  /** The tokens that `build` would give, also where they are past the context. */
  async count(
    { breakpoints: _, prefill = '', thinkingPrefill = '', scope = '', ...rest }: PromptRequest,
    signal?: AbortSignal,
  ): Promise<number> {
    const wait = new StoreWait()
    const { chat } = await this.prepare(rest, scope, wait, signal)
    const begun = { prefill: wellFormed(prefill), thinkingPrefill: wellFormed(thinkingPrefill) }
    const rendered = (await this.template.render(chat, { turns: this.turns, ...begun }, signal)) as RenderedChat
    checkPrefill(rendered, prefill)
    const { text, mark } = rendered
    const known = await this.answers.ids.knownStart(rendered, scope, wait, signal)
    const after = known === null ? text : text.slice(known.text.length)
    return (known?.ids.length ?? 0) + (await this.workers.count(after, { mark }, signal))
  }

  /** The chat with the model's own words as it said them, in the way that its dialect's templates want it. */
  private async prepare(
    request: ChatRequest,
    scope: string,
    wait: StoreWait,
    signal?: AbortSignal,
  ): Promise<PreparedChat> {
    const chat = { ...request, messages: await this.answers.calls.recall(request.messages, scope, wait, signal) }
    return this.template.dialect.prepare?.(chat) ?? { chat, places: chat.messages.map((_, index) => index) }
  }

  /** Ids of the text; where it begins with words of the model's own, those keep the ids that the model gave them. */
  private async encode(rendered: RenderedChat, scope: string, wait: StoreWait, signal?: AbortSignal): Promise<Encoded> {
    const { text, mark } = rendered
    const start = await this.answers.ids.knownStart(rendered, scope, wait, signal)
    const known = start ?? { text: '', ids: [], sections: [] }
    const after = known.text === '' ? text : text.slice(known.text.length)
    const limit = this.contextLength - 1 - known.ids.length
    const { ids, sections, past } = await this.workers.encode(after, { mark }, limit, signal)
    if (past !== null) throw this.tooLong(known.ids.length + past.tokens, past.isAtLeast)
    const moved = sections.map(({ start, token }) => ({
      start: start + known.text.length,
      token: token + known.ids.length,
    }))
    return { ids: [...known.ids, ...ids], sections: [...known.sections, ...moved], hasOwnIds: start !== null }
  }

  /** The number of tokens that certainly lie before a place in the text; 0 where the place is unknown. */
  private async position(
    { text, mark }: RenderedChat,
    { ids, sections }: Encoded,
    offset: number,
    signal?: AbortSignal,
  ): Promise<number> {
    if (offset <= 0) return 0
    const index = sections.findLastIndex(({ start }) => start <= offset)
    if (index < 0) return 0
    const section = sections[index]
    if (section.start === offset) return section.token
    if (index === sections.length - 1 && offset >= text.length) return ids.length
    const before = text.slice(section.start, offset)
    const part = (await this.workers.encode(before, { mark }, Number.POSITIVE_INFINITY, signal)).ids
    const common = commonPrefix(part, ids.slice(section.token, section.token + part.length))
    // An added token is a section of its own, so a place inside a section is one where a merge may cross.
    return section.token + Math.max(0, common - 1)
  }

  private tooLong(promptTokens: number, isAtLeast: boolean): ContextLimitError {
    return promptTooLong(promptTokens, this.contextLength, isAtLeast)
  }
}

/** A prompt that leaves no room in the context for an answer. */
export function promptTooLong(promptTokens: number, contextLength: number, isAtLeast = false): ContextLimitError {
  return new ContextLimitError(promptTokens + 1, contextLength, { promptTokens, answerTokens: 1, isAtLeast })
}

function checkPrefill({ insideThinking }: RenderedChat, prefill: string): void {
  if (insideThinking && prefill !== '')
    throw new OptionError('prefill', prefill, 'no thinking asked for, or a thinkingPrefill')
}

/**
 * Tokens: what a template alone writes before the first message is no system prompt. A step of its own reads experts of every
 * layer for a few tokens, which costs more than it can ever spare.
 */
const LEAST_SYSTEM = 16

/** The end of system prompt and tools, and the start of the last user turn. */
function automaticPlaces(messages: readonly PlainMessage[]): (Place & { landmark: Landmark })[] {
  const first = messages.findIndex(message => message.role !== 'system')
  const last = messages.findLastIndex(message => message.role === 'user')
  const places: (Place & { landmark: Landmark })[] = []
  if (first >= 0) places.push({ message: first, characters: 0, landmark: 'system' })
  if (last > first) places.push({ message: last, characters: 0, landmark: 'userTurn' })
  return places
}

/** Ascending, without 0 and without doubles: the first landmark named for a position stays. */
function distinct(landings: readonly Landing[]): Landing[] {
  const byPosition = new Map<number, Landing>()
  for (const landing of landings) {
    if (landing.position > 0 && !byPosition.has(landing.position)) byPosition.set(landing.position, landing)
  }
  return [...byPosition.values()].sort((a, b) => a.position - b.position)
}
