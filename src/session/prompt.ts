// From chat messages to a prompt: its token ids, and the positions in it that are worth keeping a state at. Positions
// lie where the ids on both sides do not depend on each other: at a control token, or one token before a boundary that
// a merge could cross. Evaluates nothing.
import { OptionError } from '../errors.js'
import type { ChatRequest, ChatTemplate, Place, RenderedChat } from '../text/chatTemplate.js'
import type { Section } from '../text/encoder.js'
import { type PlainMessage, wellFormed } from '../text/messages.js'
import type { Tokenizer } from '../text/tokenizer.js'
import type { AnswerMemory } from './answerMemory.js'
import type { Landmark } from './prefixCache.js'
import { commonPrefix } from './prefixMatch.js'

export interface Landing {
  readonly position: number // so many tokens of the prompt are before it
  readonly landmark: Landmark
}

export interface Prompt {
  readonly ids: readonly number[]
  readonly text: string
  /** Stands inside text that only looks like a control token. */
  readonly mark: string
  readonly sections: readonly Section[]
  readonly landings: readonly Landing[] // ascending, no position twice
  /** The prompt ends inside `<think>`. */
  readonly insideThinking: boolean
}

export interface PromptRequest extends ChatRequest {
  /** Where the caller asks for breakpoints. */
  readonly breakpoints?: readonly Place[]
  /** What the answer begins with. */
  readonly prefill?: string
}

export class PromptBuilder {
  constructor(
    private readonly tokenizer: Tokenizer,
    private readonly template: ChatTemplate,
    private readonly answers: AnswerMemory,
  ) {}

  async build(request: PromptRequest): Promise<Prompt> {
    const { breakpoints = [], prefill = '', ...chat } = request
    const messages = chat.messages.map(message => this.answers.recall(message))
    const places = [...automaticPlaces(messages), ...breakpoints.map(place => ({ ...place, landmark: BREAKPOINT }))]
    const opened = await this.template.render({ ...chat, messages }, { places, nextTurn: true })
    const insideThinking = /<think>\s*$/.test(opened.text)
    if (insideThinking && prefill !== '') throw new OptionError('prefill', prefill, 'an answer without thinking')
    const begun = this.tokenizer.protect(wellFormed(prefill), opened.mark, 'special')
    const rendered = { ...opened, text: opened.text + begun }
    const { ids, sections } = this.encode(rendered)
    const at = (offset: number, landmark: Landmark): Landing => ({
      position: this.position(rendered, ids, sections, offset),
      landmark,
    })
    const landings = rendered.offsets.map((offset, index) => at(offset, places[index].landmark))
    landings.push(at(rendered.nextTurn, 'promptEnd'), { position: ids.length, landmark: 'prompt' })
    return {
      ids,
      text: rendered.text,
      mark: rendered.mark,
      sections,
      landings: distinct(landings),
      insideThinking,
    }
  }

  /** Ids of the text; where it begins with words of the model's own, those keep the ids that the model gave them. */
  private encode({ text, mark }: RenderedChat): { ids: number[]; sections: Section[] } {
    const known = this.answers.knownStart(text, mark)
    if (known === null) {
      const { ids, sections } = this.tokenizer.encodeSections(text, { mark })
      return { ids: Array.from(ids), sections: [...sections] }
    }
    const rest = this.tokenizer.encodeSections(text.slice(known.text.length), { mark })
    const before = known.sections
    const after = rest.sections.map(({ start, token }) => ({
      start: start + known.text.length,
      token: token + known.ids.length,
    }))
    return { ids: [...known.ids, ...rest.ids], sections: [...before, ...after] }
  }

  /** The number of tokens that certainly lie before a place in the text; 0 where the place is unknown. */
  private position(
    { text, mark }: RenderedChat,
    ids: readonly number[],
    sections: readonly Section[],
    offset: number,
  ): number {
    if (offset <= 0) return 0
    const section = sections.findLast(({ start }) => start <= offset)
    if (section === undefined) return 0
    if (section.start === offset) return section.token
    const next = sections.find(({ start }) => start > section.start)
    if (next === undefined && offset >= text.length) return ids.length
    const part = this.tokenizer.encode(text.slice(section.start, offset), { mark })
    const common = commonPrefix(part, ids.slice(section.token, section.token + part.length))
    // An added token is a section of its own, so a place inside a section is one where a merge may cross.
    return section.token + Math.max(0, common - 1)
  }
}

const BREAKPOINT: Landmark = 'breakpoint'

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
