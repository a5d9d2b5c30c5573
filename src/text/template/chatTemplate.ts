// The chat template of a model: messages in, the text of a prompt out. Rendering itself happens in a worker: see
// chatRenderer.ts.
import { TemplateError } from '../../base/errors.js'
import type { Folder } from '../../files/source.js'
import type { DialectName } from '../../model/families/family.js'
import type { Dialect } from '../dialects/dialect.js'
import { findDialect } from '../dialects/findDialect.js'
import { parseJson } from '../tokenizer/tokenizer.js'
import type { TextWorkers } from '../workers/textWorkers.js'
import type { ChatRequest, RenderedChat, RenderOptions } from './chatRenderer.js'
import type { TemplateVariables } from './templateEngine.js'

export class ChatTemplate {
  /** What answers to its prompts are written in. */
  readonly dialect: Dialect

  constructor(
    readonly source: string,
    private readonly workers: TextWorkers,
    /** bos_token and the like, which templates may print. */
    private readonly constants: TemplateVariables = {},
    /** The dialect of the model's family, for templates that show none. */
    dialect?: DialectName,
  ) {
    this.dialect = findDialect(source, dialect)
  }

  /** The prompt; or, where it has more tokens than `options.maxTokens`, how many it has at least. */
  async render(
    request: ChatRequest,
    options: RenderOptions = {},
    signal?: AbortSignal,
  ): Promise<RenderedChat | { readonly atLeast: number }> {
    const { source, constants } = this
    const { thinking, layout } = this.dialect
    const thinkingOpen = thinking?.open ?? null
    const textOpen = layout.kind === 'channels' ? layout.text : ''
    const afterThinking = layout.kind === 'channels' ? layout.thinking.close + layout.text : layout.afterThinking
    const job = { source, constants, request, options, thinkingOpen, textOpen, afterThinking }
    const reply = await this.workers.render(job, signal)
    if ('error' in reply) throw new TemplateError(`chat template: ${reply.error}`)
    return reply
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
  workers: TextWorkers,
  dialect?: DialectName,
): Promise<ChatTemplate | null> {
  const { source, constants } = await readTemplate(folder)
  return source === null ? null : new ChatTemplate(source, workers, constants, dialect)
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
