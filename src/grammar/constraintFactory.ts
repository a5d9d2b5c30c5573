// Makes the constraint of one answer from what a caller asks for: a response format, tools and a tool choice. One
// factory per opened model; the vocabulary is handed to a grammar worker when the first constraint is asked for.
import { OptionError } from '../base/errors.js'
import type { Dialect } from '../text/dialects/dialect.js'
import type { Tokenizer } from '../text/tokenizer/tokenizer.js'
import { AnswerConstraint, type AnswerTokens } from './answerConstraint.js'
import { ConstraintCompiler, type ConstraintOptions, type TokenConstraint } from './constraint.js'
import { looksLikeMark, type Marks, markPiece } from './source/marks.js'
import type { CallSource, TextSource } from './source/sourceKinds.js'
import type { ToolSchema } from './source/toolCallGrammar.js'

export type ResponseFormat =
  | { readonly type: 'text' }
  | { readonly type: 'json_object' } // any JSON object
  | { readonly type: 'json_schema'; readonly schema: unknown }
  | { readonly type: 'grammar'; readonly grammar: string } // EBNF, rule `root`

export type ToolChoice = 'none' | 'auto' | 'required' | { readonly name: string }

export interface AnswerRequest {
  readonly responseFormat?: ResponseFormat
  readonly tools?: readonly ToolSchema[]
  readonly toolChoice?: ToolChoice // default 'auto' where there are tools
  readonly parallelToolCalls?: boolean // default true
  /** The prompt ended inside thinking. */
  readonly insideThinking?: boolean
  /** The prompt asks for thinking, and leaves it to the model to open it. */
  readonly mayThink?: boolean
  /** The answer goes on with raw text: nothing stands around it. */
  readonly isRaw?: boolean
}

export class ConstraintFactory {
  private compiler: ConstraintCompiler | null = null
  private readonly tokens: AnswerTokens
  private readonly marks: Marks

  constructor(
    private readonly tokenizer: Tokenizer,
    vocabSize: number,
    stopTokenIds: readonly number[],
    private readonly dialect: Dialect,
    private readonly options: ConstraintOptions = {},
  ) {
    const id = (text: string | undefined) => (text === undefined ? null : (tokenizer.addedToken(text)?.id ?? null))
    const { thinking, layout } = dialect
    const around = layout.kind === 'tags' ? layout.call : undefined
    this.tokens = {
      vocabSize,
      stopTokenIds,
      thinkOpen: id(thinking?.open),
      thinkEnd: id(thinking?.close),
      toolCall: id(around?.open),
      toolCallEnd: id(around?.close),
      newlines: ['\n', '\n\n']
        .map(text => tokenizer.encode(text))
        .filter(ids => ids.length === 1)
        .map(([only]) => only),
    }
    const known = dialect.marks.filter(text => tokenizer.addedToken(text) !== null)
    this.marks = Object.fromEntries(known.map((text, index) => [text, index]))
  }

  /**
   * Null where nothing is asked that needs one. Throws UnsupportedSchemaError or GrammarError before any token is made.
   * `signal` stops the work on the grammar.
   */
  async open(request: AnswerRequest, signal?: AbortSignal): Promise<TokenConstraint | null> {
    const tools = request.tools ?? []
    const choice = request.toolChoice ?? 'auto'
    const wanted = typeof choice === 'object' ? tools.filter(tool => tool.name === choice.name) : tools
    if (typeof choice === 'object' && wanted.length === 0) {
      throw new OptionError(
        'toolChoice',
        choice.name,
        `one of the tools: ${tools.map(tool => tool.name).join(', ') || 'there are none'}`,
      )
    }
    if (choice === 'required' && tools.length === 0) throw new OptionError('toolChoice', choice, 'tools to choose from')
    const required = choice === 'required' || typeof choice === 'object'
    const text = required ? null : formatSource(request.responseFormat)
    const callsMatter = tools.length > 0 && choice !== 'none'
    const callsAreBound = callsMatter && (required || tools.some(tool => tool.strict) || text !== null)
    const call: CallSource | null = callsAreBound
      ? { kind: 'tool_call', tools: wanted.map(bareTool), form: this.dialect.call, marks: this.marks }
      : null
    if (text === null && call === null) return null
    const { layout } = this.dialect
    const compiler = (this.compiler ??= this.createCompiler())
    if (layout.kind === 'channels' && !request.isRaw) {
      this.checkMarks(call === null ? 'responseFormat' : 'toolChoice', this.dialect.marks)
      const words = required ? null : { grammar: text }
      return await compiler.open({ kind: 'channels', layout, text: words, call, marks: this.marks }, signal)
    }
    if (call !== null && layout.kind === 'tags') this.checkMarks('toolChoice', [layout.call.open, layout.call.close])
    // Made once here, so that a grammar that cannot be is the caller's error and not the answer's end.
    for (const source of [text, call]) {
      if (source !== null) (await compiler.open(source, signal)).close()
    }
    return new AnswerConstraint(this.tokens, {
      insideThinking: request.insideThinking ?? false,
      mayThink: request.mayThink ?? false,
      text: text === null ? null : () => compiler.open(text),
      call: call === null ? null : () => compiler.open(call),
      calls: required ? 'required' : callsMatter ? 'allowed' : 'none',
      parallelCalls: (request.parallelToolCalls ?? true) && typeof choice !== 'object',
    })
  }

  private checkMarks(option: string, marks: readonly string[]): void {
    const missing = marks.filter(text => !Object.hasOwn(this.marks, text))
    if (missing.length > 0) throw new OptionError(option, 'this', `a model whose tokenizer has ${missing.join(', ')}`)
  }

  async close(): Promise<void> {
    await this.compiler?.close()
  }

  /** Control tokens are never part of a grammar's text: their pieces are empty, but for those of the dialect. */
  private createCompiler(): ConstraintCompiler {
    const { vocabSize, stopTokenIds } = this.tokens
    const piece = (token: number) => {
      const text = this.tokenizer.tokenText(token)
      if (text === null || looksLikeMark(text)) return ''
      if (this.tokenizer.addedToken(text)?.id !== token) return text
      return Object.hasOwn(this.marks, text) ? markPiece(this.marks[text]) : ''
    }
    return new ConstraintCompiler({ piece, vocabSize, stopTokenIds }, this.options)
  }
}

/** What a tool's description says changes no grammar. */
function bareTool({ name, parameters, strict }: ToolSchema): ToolSchema {
  return { name, parameters, strict }
}

function formatSource(format: ResponseFormat | undefined): TextSource | null {
  switch (format?.type) {
    case 'json_object':
      return { kind: 'json_object' }
    case 'json_schema':
      return { kind: 'json_schema', schema: format.schema }
    case 'grammar':
      return { kind: 'ebnf', text: format.grammar }
    default:
      return null
  }
}
