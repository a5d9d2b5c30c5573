// From a chat to the text of its prompt, inside a worker: renders the template, finds out where in the prompt messages begin
// and end, and makes sure that only the template's own control tokens are such. Text that callers wrote and that spells
// one gets a mark inside (a character that occurs nowhere else), and an encoder that is told of the mark leaves it text.
import type { AddedTokens } from '../tokenizer/addedTokens.js'
import { COUNTED_CHARACTERS, type Encoder } from '../tokenizer/encoder.js'
import type { PlainMessage, PlainTool } from './messages.js'
import { type Rendering, renderTemplate, type TemplateVariables } from './templateEngine.js'
import { Origin, OriginReader } from './textOrigins.js'

export interface ChatRequest {
  readonly messages: readonly PlainMessage[]
  readonly tools?: readonly PlainTool[]
  /** Ask the model to think first, and how much where its template knows that. Default false. */
  readonly thinking?: boolean | 'low' | 'medium' | 'high'
  /** End with the opening of an answer. Default true. */
  readonly generationPrompt?: boolean
  /** More variables for templates that know them. */
  readonly variables?: TemplateVariables
}

/** A place in the prompt that is asked for: after so many characters of a message's content. */
export interface Place {
  readonly message: number
  readonly characters: number
}

export interface RenderOptions {
  readonly places?: readonly Place[]
  readonly nextTurn?: boolean
  /** Of so many answers in the chat, the last ones, where the prompts ended that asked for them. */
  readonly turns?: number
  /** What the answer begins with: put behind the opening of the answer. */
  readonly prefill?: string
  /** What its thinking begins with; with a prefill beside it, all of its thinking. */
  readonly thinkingPrefill?: string
  /** A prompt that certainly has more tokens need not be rendered to the end. */
  readonly maxTokens?: number
}

export interface RenderedChat {
  /** The prompt, with `mark` inside whatever only looks like a control token. */
  readonly text: string
  readonly mark: string
  /** For each place its offset in `text`, or -1 where the template did not print it as it is. */
  readonly offsets: readonly number[]
  /** How much of `text` will still be there when an answer and another user message follow; 0 where not asked for. */
  readonly nextTurn: number
  readonly turns: readonly EarlierTurn[]
  /** The prompt ends inside thinking. */
  readonly insideThinking: boolean
}

/** Offsets in the text: what is still there of the prompt that asked for an earlier answer, and where that answer ends. */
export interface EarlierTurn {
  readonly opening: number
  readonly end: number
  /** All of that prompt is still there. */
  readonly isWhole: boolean
}

/** One chat to render. Can be posted. */
export interface RenderJob {
  readonly source: string
  /** bos_token and the like, which templates may print. */
  readonly constants: TemplateVariables
  readonly request: ChatRequest
  readonly options: RenderOptions
  /** What thinking begins with; null: the model does not think. */
  readonly thinkingOpen: string | null
  /** What stands between the opening of an answer and its text. */
  readonly textOpen: string
  /** What stands between a thought and the text after it. */
  readonly afterThinking: string
  readonly maxOutput: number // characters
}

export type RenderReply = RenderedChat | { readonly atLeast: number } | { readonly error: string }

/** Where the template refuses system messages after the first, those are given to it as a user's. */
export function renderChat(job: RenderJob, added: AddedTokens, encoder: Encoder): RenderReply {
  const reply = renderOnce(job, added, encoder)
  const isLate = ({ role }: PlainMessage, index: number) => role === 'system' && index > 0
  if (!('error' in reply) || !job.request.messages.some(isLate)) return reply
  const messages = job.request.messages.map((message, index) =>
    isLate(message, index) ? ({ ...message, role: 'user' } as const) : message,
  )
  return renderOnce({ ...job, request: { ...job.request, messages } }, added, encoder)
}

function renderOnce(job: RenderJob, added: AddedTokens, encoder: Encoder): RenderReply {
  const { request, options, thinkingOpen } = job
  const { places = [], nextTurn = false, turns = 0, maxTokens = Number.POSITIVE_INFINITY } = options
  const opened = render(job, request)
  if ('error' in opened) return opened
  // The engine has no answer to a prompt without tokens.
  if (opened.text === '') return { error: 'rendered nothing from the messages' }
  const opensThinking = thinkingOpen !== null && opened.text.trimEnd().endsWith(thinkingOpen)
  const begun = beginning(job, opensThinking)
  const text = opened.text + begun.map(piece => piece.text).join('')
  if (text.length > COUNTED_CHARACTERS && maxTokens !== Number.POSITIVE_INFINITY) {
    const atLeast = encoder.leastTokens(text)
    if (atLeast > maxTokens) return { atLeast }
  }
  const [mark, pin] = unusedCharacters(text)
  const withPins =
    places.length > 0 ? render(job, { ...request, messages: pinned(request.messages, places, pin) }) : null
  const offsets = places.length > 0 ? pinOffsets(opened.text, withPins, pin, places) : []
  const goesOn = nextTurn ? commonLength(opened.text, render(job, withNextTurn(request))) : 0
  const earlier = answersOf(request.messages, turns).map(index => earlierTurn(job, request, index, opened.text))
  const pieces = [...opened.pieces, ...begun.map(({ text, origin }) => ({ length: text.length, origin }))]
  const origins = new OriginReader(pieces)
  const marked = added.protect(text, mark, ({ at, end, token }) => {
    return origins.weakest(at, end) < (token.special ? Origin.template : Origin.trusted)
  })
  return {
    text: marked.text,
    mark,
    offsets: offsets.map(offset => marked.offset(offset)),
    nextTurn: marked.offset(goesOn),
    turns: earlier.map(turn => ({ ...turn, opening: marked.offset(turn.opening), end: marked.offset(turn.end) })),
    insideThinking: options.thinkingPrefill ? !options.prefill : opensThinking,
  }
}

/** What there is of the answer already, with what stands between the template's opening and that. */
function beginning({ options, thinkingOpen, textOpen, afterThinking }: RenderJob, opensThinking: boolean) {
  const { prefill = '', thinkingPrefill = '' } = options
  const own = (text: string) => ({ text, origin: Origin.template })
  const said = (text: string) => ({ text, origin: Origin.trusted })
  if (thinkingPrefill === '') return prefill === '' ? [] : [own(textOpen), said(prefill)]
  const opening = own(opensThinking ? '' : (thinkingOpen ?? ''))
  if (prefill === '') return [opening, said(thinkingPrefill)]
  return [opening, said(thinkingPrefill.trimEnd()), own(afterThinking), said(prefill)]
}

function render({ source, constants, maxOutput }: RenderJob, request: ChatRequest): Rendering {
  const { messages, tools = [], thinking = false, generationPrompt = true, variables = {} } = request
  const { messages: _, tools: __, ...others } = variables
  const own = {
    messages,
    ...(tools.length > 0 && { tools }),
    add_generation_prompt: generationPrompt,
    enable_thinking: thinking !== false,
  }
  return renderTemplate(source, { constants, variables: others, request: own }, maxOutput)
}

function withNextTurn(request: ChatRequest): ChatRequest {
  const more: PlainMessage[] = [
    { role: 'assistant', content: 'x' },
    { role: 'user', content: 'x' },
  ]
  return { ...request, messages: [...request.messages, ...more], generationPrompt: false }
}

/** The last `count` messages that are answers, with a prompt before them. */
function answersOf(messages: readonly PlainMessage[], count: number): number[] {
  if (count === 0) return []
  const answers = [...messages.keys()].filter(index => index > 0 && messages[index].role === 'assistant')
  return answers.slice(-count)
}

/** What the request for the answer `index` found to be still there in a next turn, as far as it is. */
function earlierTurn(job: RenderJob, request: ChatRequest, index: number, text: string): EarlierTurn {
  const before = { ...request, messages: request.messages.slice(0, index) }
  const asked = render(job, before)
  const answered = render(job, { ...request, messages: request.messages.slice(0, index + 1), generationPrompt: false })
  const goesOn = 'text' in asked ? commonLength(asked.text, render(job, withNextTurn(before))) : 0
  const common = commonLength(text, asked)
  const isWhole = 'text' in asked && common === asked.text.length
  return { opening: Math.min(goesOn, common), end: commonLength(text, answered), isWhole }
}

/** Two characters of the private use area that the text does not contain. */
function unusedCharacters(text: string): [string, string] {
  const used = new Set(text.match(/[\ue000-\uf8ff]/g))
  const unused: string[] = []
  for (let code = 0xe000; code <= 0xf8ff && unused.length < 2; code++) {
    const character = String.fromCharCode(code)
    if (!used.has(character)) unused.push(character)
  }
  if (unused.length < 2) throw new Error('the messages use every private-use character of Unicode')
  return unused as [string, string]
}

function pinned(messages: readonly PlainMessage[], places: readonly Place[], pin: string): PlainMessage[] {
  return messages.map((message, index) => {
    const { content } = message
    const cuts = places.filter(place => place.message === index).map(place => pinPosition(content, place.characters))
    let text = ''
    let from = 0
    for (const cut of cuts.sort((a, b) => a - b)) {
      text += content.slice(from, cut) + pin
      from = cut
    }
    return { ...message, content: text + content.slice(from) }
  })
}

/** Templates trim: a pin stays between the first and the last visible character, where trimming does not reach it. */
function pinPosition(content: string, characters: number): number {
  const first = content.length - content.trimStart().length
  return Math.max(first, Math.min(characters, content.trimEnd().length))
}

function pinOffsets(text: string, withPins: Rendering | null, pin: string, places: readonly Place[]): number[] {
  const parts = withPins !== null && 'text' in withPins ? withPins.text.split(pin) : []
  if (parts.length !== places.length + 1 || parts.join('') !== text) return places.map(() => -1)
  const offsets: number[] = []
  let offset = 0
  for (const part of parts.slice(0, -1)) offsets.push((offset += part.length))
  const inOrder = places
    .map((place, index) => ({ ...place, index }))
    .sort((a, b) => a.message - b.message || a.characters - b.characters)
  const result: number[] = new Array(places.length)
  inOrder.forEach((place, position) => {
    result[place.index] = offsets[position]
  })
  return result
}

function commonLength(text: string, other: Rendering): number {
  if (!('text' in other)) return 0
  let length = 0
  while (length < text.length && text.charCodeAt(length) === other.text.charCodeAt(length)) length++
  return length
}
