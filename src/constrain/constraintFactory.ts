// Makes the constraint of one answer from what a caller asks for: a response format, tools and a tool choice. One
// factory per opened model; the vocabulary is handed to the grammar worker when the first constraint is asked for.
import { OptionError } from '../errors.js'
import type { Tokenizer } from '../text/tokenizer.js'
import { AnswerConstraint, type AnswerTokens } from './answerConstraint.js'
import { ConstraintCompiler, type ConstraintOptions, type TokenConstraint } from './constraint.js'
import { grammarText } from './grammarTree.js'
import { anyJsonRules, JSON_RULE, jsonSchemaGrammar } from './jsonSchemaGrammar.js'
import { type ToolCallForm, type ToolSchema, toolCallForm, toolCallGrammar } from './toolCallGrammar.js'

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
  /** The prompt ended inside `<think>`. */
  readonly insideThinking?: boolean
}

export class ConstraintFactory {
  private compiler: ConstraintCompiler | null = null
  private readonly tokens: AnswerTokens
  private readonly form: ToolCallForm

  constructor(
    private readonly tokenizer: Tokenizer,
    vocabSize: number,
    stopTokenIds: readonly number[],
    chatTemplate: string | null,
    private readonly options: ConstraintOptions = {},
  ) {
    const id = (text: string) => tokenizer.addedToken(text)?.id ?? null
    this.tokens = {
      vocabSize,
      stopTokenIds,
      thinkEnd: id('</think>'),
      toolCall: id('<tool_call>'),
      toolCallEnd: id('</tool_call>'),
      newlines: ['\n', '\n\n']
        .map(text => tokenizer.encode(text))
        .filter(ids => ids.length === 1)
        .map(([only]) => only),
    }
    this.form = toolCallForm(chatTemplate)
  }

  /** Null where nothing is asked that needs one. Throws UnsupportedSchemaError or GrammarError before any token is made. */
  async open(request: AnswerRequest): Promise<TokenConstraint | null> {
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
    const textGrammar = required ? null : formatGrammar(request.responseFormat)
    const callsMatter = tools.length > 0 && choice !== 'none'
    const callGrammar =
      callsMatter && (required || tools.some(tool => tool.strict) || textGrammar !== null)
        ? toolCallGrammar(wanted, this.form)
        : null
    if (textGrammar === null && callGrammar === null) return null
    if (callGrammar !== null && (this.tokens.toolCall === null || this.tokens.toolCallEnd === null)) {
      throw new OptionError('toolChoice', choice, 'a model whose tokenizer has <tool_call>')
    }
    const compiler = (this.compiler ??= this.createCompiler())
    // Compiled once here, so that a grammar that does not compile is the caller's error and not the answer's end.
    for (const grammar of [textGrammar, callGrammar]) {
      if (grammar !== null) (await compiler.open(grammar)).close()
    }
    return new AnswerConstraint(this.tokens, {
      insideThinking: request.insideThinking ?? false,
      text: textGrammar === null ? null : () => compiler.open(textGrammar),
      call: callGrammar === null ? null : () => compiler.open(callGrammar),
      calls: required ? 'required' : callsMatter ? 'allowed' : 'none',
      parallelCalls: (request.parallelToolCalls ?? true) && typeof choice !== 'object',
    })
  }

  async close(): Promise<void> {
    await this.compiler?.close()
  }

  /** Control tokens and tags are never part of a grammar's text: their pieces are empty. */
  private createCompiler(): ConstraintCompiler {
    const { vocabSize, stopTokenIds } = this.tokens
    const pieces: string[] = []
    for (let id = 0; id < vocabSize; id++) {
      const text = this.tokenizer.tokenText(id)
      const added = text === null || this.tokenizer.addedToken(text)?.id === id
      pieces.push(added ? '' : text)
    }
    return new ConstraintCompiler({ pieces, vocabSize, stopTokenIds }, this.options)
  }
}

function formatGrammar(format: ResponseFormat | undefined): string | null {
  switch (format?.type) {
    case 'json_object': {
      const rules = anyJsonRules()
      rules.set('root', { kind: 'rule', name: `${JSON_RULE}_object` })
      return grammarText(rules)
    }
    case 'json_schema':
      return jsonSchemaGrammar(format.schema)
    case 'grammar':
      return format.grammar
    default:
      return null
  }
}
