// Messages to prompt text by the model's own chat template. What callers wrote may spell control tokens: such text gets
// a mark inside (a character that occurs nowhere else), and the tokenizer, told of the mark, leaves it text. The same
// trick finds out where in the prompt a message begins or ends. Rendering itself happens in a worker.
import { TemplateError } from '../errors.js'
import type { Folder } from '../storage/byteSource.js'
import type { PlainMessage, ToolDefinition } from './messages.js'
import type { TemplateVariables } from './templateEngine.js'
import type { TemplateRenderer } from './templateRenderer.js'
import { parseJson, type Tokenizer } from './tokenizer.js'

export interface ChatRequest {
  readonly messages: readonly PlainMessage[]
  readonly tools?: readonly ToolDefinition[]
  /** Ask the model to think first. Default false. */
  readonly thinking?: boolean
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

export interface RenderedChat {
  /** The prompt, with `mark` inside whatever only looks like a control token. */
  readonly text: string
  readonly mark: string
  /** For each place its offset in `text`, or -1 where the template did not print it as it is. */
  readonly offsets: readonly number[]
  /** How much of `text` will still be there when an answer and another user message follow; 0 where not asked for. */
  readonly nextTurn: number
}

export interface RenderOptions {
  readonly places?: readonly Place[]
  readonly nextTurn?: boolean
}

export class ChatTemplate {
  constructor(
    readonly source: string,
    private readonly tokenizer: Tokenizer,
    private readonly renderer: TemplateRenderer,
    /** bos_token and the like, which templates may print. */
    private readonly constants: TemplateVariables = {},
  ) {}

  /** Where the template refuses system messages after the first, those are given to it as a user's. */
  async render(request: ChatRequest, options: RenderOptions = {}): Promise<RenderedChat> {
    try {
      return await this.renderOnce(request, options)
    } catch (error) {
      const isLate = ({ role }: PlainMessage, index: number) => role === 'system' && index > 0
      if (!(error instanceof TemplateError) || !request.messages.some(isLate)) throw error
      const messages = request.messages.map((message, index) =>
        isLate(message, index) ? ({ ...message, role: 'user' } as const) : message,
      )
      return await this.renderOnce({ ...request, messages }, options)
    }
  }

  private async renderOnce(request: ChatRequest, options: RenderOptions): Promise<RenderedChat> {
    const { places = [], nextTurn = false } = options
    const [mark, pin] = unusedCharacters(JSON.stringify([this.source, request.messages, request.tools ?? null]))
    const variants = [request]
    if (places.length > 0) variants.push({ ...request, messages: pinned(request.messages, places, pin) })
    if (nextTurn) {
      const messages = [
        ...request.messages,
        { role: 'assistant', content: 'x' },
        { role: 'user', content: 'x' },
      ] as const
      variants.push({ ...request, messages, generationPrompt: false })
    }
    const renderings = await this.renderer.render(
      this.source,
      variants.map(variant => this.variables(variant, mark)),
    )
    const texts = renderings.map(rendering => ('text' in rendering ? rendering.text : null))
    const [text] = texts
    if (text === null) throw new TemplateError(`chat template: ${(renderings[0] as { error: string }).error}`)
    // The engine has no answer to a prompt without tokens.
    if (text === '') throw new TemplateError('chat template: rendered nothing from the messages')
    return {
      text,
      mark,
      offsets: places.length > 0 ? pinOffsets(text, texts[1], pin, places) : [],
      nextTurn: nextTurn ? commonLength(text, texts.at(-1) ?? '') : 0,
    }
  }

  private variables(request: ChatRequest, mark: string): TemplateVariables {
    return {
      ...this.constants,
      ...request.variables,
      messages: request.messages.map(message => this.protect(message, mark)),
      ...(request.tools && request.tools.length > 0 && { tools: this.protectDeep(request.tools, mark, 'special') }),
      add_generation_prompt: request.generationPrompt ?? true,
      enable_thinking: request.thinking ?? false,
    }
  }

  /** The system prompt and the model's own words may use `<think>` and `<tool_call>`; users and tools may not. */
  private protect(message: PlainMessage, mark: string): PlainMessage {
    const trusted = message.role === 'system' || message.role === 'assistant'
    const { content, tool_calls: calls, ...rest } = message
    return {
      ...(this.protectDeep(rest, mark, 'special') as Omit<PlainMessage, 'content'>),
      content: this.tokenizer.protect(content, mark, trusted ? 'special' : 'added'),
      ...(calls && { tool_calls: this.protectDeep(calls, mark, 'added') as PlainMessage['tool_calls'] }),
    }
  }

  private protectDeep(value: unknown, mark: string, which: 'added' | 'special'): unknown {
    if (typeof value === 'string') return this.tokenizer.protect(value, mark, which)
    if (Array.isArray(value)) return value.map(item => this.protectDeep(item, mark, which))
    if (value === null || typeof value !== 'object') return value
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [
        this.tokenizer.protect(key, mark, which),
        this.protectDeep(item, mark, which),
      ]),
    )
  }
}

export interface TemplateFiles {
  readonly source: string | null
  readonly constants: TemplateVariables
}

/** The template text of a model folder: chat_template.jinja, or `chat_template` of tokenizer_config.json. */
export async function readTemplate(folder: Folder): Promise<TemplateFiles> {
  const json = await folder.readText('tokenizer_config.json')
  const config = json === null ? {} : parseJson(json, 'tokenizer_config.json')
  const fields = config !== null && typeof config === 'object' ? (config as Record<string, unknown>) : {}
  const constants = Object.fromEntries(
    ['bos_token', 'eos_token', 'pad_token', 'unk_token'].map(name => {
      const value = fields[name] as { content?: unknown } | string | null | undefined
      return [name, (typeof value === 'object' ? value?.content : value) ?? null]
    }),
  )
  return { source: (await folder.readText('chat_template.jinja')) ?? templateOf(fields.chat_template), constants }
}

export async function loadChatTemplate(
  folder: Folder,
  tokenizer: Tokenizer,
  renderer: TemplateRenderer,
): Promise<ChatTemplate | null> {
  const { source, constants } = await readTemplate(folder)
  return source === null ? null : new ChatTemplate(source, tokenizer, renderer, constants)
}

function templateOf(value: unknown): string | null {
  if (value === undefined || value === null) return null
  if (typeof value === 'string') return value
  if (Array.isArray(value)) {
    const named = new Map(value.map(entry => [entry?.name, entry?.template]))
    const template = named.get('default') ?? value[0]?.template
    if (typeof template === 'string') return template
  }
  throw new TemplateError('tokenizer_config.json: chat_template is neither text nor a list of named templates')
}

/** Two characters of the private use area that the text does not contain. */
function unusedCharacters(text: string): [string, string] {
  const found: string[] = []
  for (let code = 0xe000; code <= 0xf8ff; code++) {
    const character = String.fromCharCode(code)
    if (!text.includes(character) && found.push(character) === 2) return found as [string, string]
  }
  throw new TemplateError('the messages use every private-use character of Unicode')
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

function pinOffsets(text: string, withPins: string | null, pin: string, places: readonly Place[]): number[] {
  const parts = (withPins ?? '').split(pin)
  if (parts.join('') !== text || parts.length !== places.length + 1) return places.map(() => -1)
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

function commonLength(a: string, b: string): number {
  let length = 0
  while (length < a.length && a[length] === b[length]) length++
  return length
}
