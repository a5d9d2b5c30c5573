// Renders one chat template with @huggingface/jinja. Runs inside a worker (nodeTextWorker.ts), where an endless or greedy
// template can be stopped from outside; here the size of every value is bounded, because one huge allocation would end not
// only the worker but the process. Keeps track of who wrote which part of the result (textOrigins.ts), and closes gaps of
// the library against Python's Jinja that chat templates rely on.

import * as jinja from '@huggingface/jinja'
import { messageOf } from '../../base/errors.js'
import {
  appendPieces,
  isNoted,
  notePieces,
  Origin,
  type Piece,
  piecesOf,
  slicePieces,
  weakestOrigin,
} from './textOrigins.js'

const LIST_LIMIT = 1_000_000

export type TemplateVariables = Readonly<Record<string, unknown>>

// The library's own types of these do not resolve outside of it.
interface RuntimeValue {
  readonly type: string
  readonly value: unknown
  toString(): string
}
interface EnvironmentType {
  set(name: string, value: unknown): RuntimeValue
  setVariable(name: string, value: RuntimeValue): void
}
interface Node {
  readonly type: string
  readonly value?: unknown
}
interface OperatorNode extends Node {
  readonly operator: { readonly value: string }
  readonly left: Node
  readonly right: Node
}
interface LoopNode extends Node {
  readonly body: readonly Node[]
  readonly defaultBlock: readonly Node[]
}
interface InterpreterType {
  run(program: unknown): RuntimeValue
  evaluate(statement: Node, environment: EnvironmentType): RuntimeValue
  evaluateBlock(statements: readonly Node[], environment: EnvironmentType): RuntimeValue
  evaluateFor(node: LoopNode, environment: EnvironmentType): RuntimeValue
  evaluateBinaryExpression(node: OperatorNode, environment: EnvironmentType): RuntimeValue
  evaluateSliceExpression(object: RuntimeValue, node: Node, environment: EnvironmentType): RuntimeValue
  evaluateArguments(args: unknown, environment: EnvironmentType): [RuntimeValue[], Map<string, RuntimeValue>]
  applyFilter(operand: RuntimeValue, filter: Node, environment: EnvironmentType): RuntimeValue
}
type Builtins = Map<string, RuntimeValue>
type Call = (args: RuntimeValue[], environment: EnvironmentType) => RuntimeValue

const Environment = jinja.Environment as unknown as new () => EnvironmentType
const Interpreter = jinja.Interpreter as unknown as new (environment: EnvironmentType) => InterpreterType

/** A value in place of the expression that gave it. */
interface KnownNode extends Node {
  readonly type: 'Known'
  readonly value: RuntimeValue
}

/**
 * No string longer than the output may be, no list longer than `range` may be: checked after every expression. A string
 * knows its pieces where it is a literal, or put together of strings that do; what comes out of anything else is as
 * trusted as the least of what went in.
 */
class ChatInterpreter extends Interpreter {
  private readonly loops: { readonly node: LoopNode; readonly pieces: Piece[] }[] = []
  private inputs: RuntimeValue[] | null = null // of the filter that is being applied

  constructor(
    environment: EnvironmentType,
    private readonly maxOutput: number,
  ) {
    super(environment)
  }

  override evaluate(statement: Node, environment: EnvironmentType): RuntimeValue {
    if (statement?.type === 'Known') return (statement as KnownNode).value
    const result = super.evaluate(statement, environment)
    const { value } = result
    if (typeof value === 'string') {
      if (value.length > this.maxOutput) {
        throw new Error(`a text of ${value.length} characters, more than ${this.maxOutput}`)
      }
      if (statement.type === 'StringLiteral') notePieces(result, [{ length: value.length, origin: Origin.template }])
    }
    if (Array.isArray(value) && value.length > LIST_LIMIT) {
      throw new Error(`a list of ${value.length} values, more than ${LIST_LIMIT}`)
    }
    return result
  }

  /** As the library's own, with pieces. */
  override evaluateBlock(statements: readonly Node[], environment: EnvironmentType): RuntimeValue {
    let text = ''
    const pieces: Piece[] = []
    for (const statement of statements) {
      const value = this.evaluate(statement, environment)
      if (value.type === 'NullValue' || value.type === 'UndefinedValue') continue
      const part = value.toString()
      text += part
      appendPieces(pieces, piecesOfValue(value, part.length))
    }
    const loop = this.loops.at(-1)
    if (loop !== undefined && (statements === loop.node.body || statements === loop.node.defaultBlock)) {
      appendPieces(loop.pieces, pieces)
    }
    return notePieces(runtimeValue(text), pieces)
  }

  /** The library puts the blocks of all rounds together; one that is left early leaves nothing. */
  override evaluateFor(node: LoopNode, environment: EnvironmentType): RuntimeValue {
    const loop = { node, pieces: [] }
    this.loops.push(loop)
    try {
      return notePieces(super.evaluateFor(node, environment), loop.pieces)
    } finally {
      this.loops.splice(this.loops.indexOf(loop))
    }
  }

  override evaluateBinaryExpression(node: OperatorNode, environment: EnvironmentType): RuntimeValue {
    const { value: operator } = node.operator
    if (operator !== '+' && operator !== '~') return super.evaluateBinaryExpression(node, environment)
    const left = this.evaluate(node.left, environment)
    const right = this.evaluate(node.right, environment)
    const known = (value: RuntimeValue): KnownNode => ({ type: 'Known', value })
    const result = super.evaluateBinaryExpression(
      { ...node, operator: node.operator, left: known(left), right: known(right) },
      environment,
    )
    if (typeof result.value !== 'string') return result
    const pieces: Piece[] = []
    for (const side of [left, right]) appendPieces(pieces, piecesOfValue(side, String(side.value).length))
    return notePieces(result, pieces)
  }

  override evaluateSliceExpression(object: RuntimeValue, node: Node, environment: EnvironmentType): RuntimeValue {
    return noteWeakest(super.evaluateSliceExpression(object, node, environment), object, [])
  }

  override evaluateArguments(args: unknown, environment: EnvironmentType) {
    const { inputs } = this
    this.inputs = null
    const result = super.evaluateArguments(args, environment)
    this.inputs = inputs && [...inputs, ...result[0], ...result[1].values()]
    return result
  }

  /** Python's `string` writes True, False and None, which the library writes otherwise or refuses. */
  override applyFilter(operand: RuntimeValue, filter: Node, environment: EnvironmentType): RuntimeValue {
    if (filter.type === 'Identifier' && filter.value === 'string') {
      if (operand.type === 'BooleanValue') return runtimeValue(operand.value ? 'True' : 'False')
      if (operand.type === 'NullValue') return runtimeValue('None')
    }
    const outer = this.inputs
    this.inputs = [operand]
    try {
      const result = super.applyFilter(operand, filter, environment)
      if (filter.type === 'Identifier' && filter.value === 'trim') return noteStripped(result, operand)
      return noteWeakest(result, operand, this.inputs.slice(1))
    } finally {
      this.inputs = outer
    }
  }
}

/** `pieces` say who wrote what in `text`. */
export type Rendering = { readonly text: string; readonly pieces: readonly Piece[] } | { readonly error: string }

export interface RenderVariables {
  /** Of the model folder: as good as written in the template. */
  readonly constants: TemplateVariables
  /** What callers may name as they like, but not as the template language or the model names its own. */
  readonly variables: TemplateVariables
  /** What the request is made of. Of messages, the role is one of a few words, and some contents are trusted. */
  readonly request: TemplateVariables & { readonly messages: readonly object[] }
}

let lastProgram: { source: string; program: unknown } | null = null

export function renderTemplate(source: string, variables: RenderVariables, maxOutput: number): Rendering {
  if (lastProgram?.source !== source) {
    try {
      lastProgram = { source, program: new jinja.Template(source).parsed }
    } catch (cause) {
      // The library looks past the last token of a template that is cut off, which says nothing to people.
      const detail = cause instanceof TypeError ? 'it seems to be cut off' : messageOf(cause)
      return { error: `does not parse: ${detail}` }
    }
  }
  completeStringMethods()
  try {
    const result = new ChatInterpreter(environmentOf(variables), maxOutput).run(lastProgram.program)
    const text = result.value as string
    return { text, pieces: piecesOf(result, text.length) }
  } catch (cause) {
    return { error: messageOf(cause) }
  }
}

function environmentOf({ constants, variables, request }: RenderVariables): EnvironmentType {
  const environment = new Environment()
  const own = new Set(['namespace', ...Object.keys(constants)])
  for (const [name, value] of globals()) {
    environment.set(name, value)
    own.add(name)
  }
  for (const [name, value] of Object.entries(variables)) {
    if (own.has(name)) throw new Error(`'${name}' is the template's own and cannot be given`)
    environment.setVariable(name, runtimeValue(value))
  }
  for (const [name, value] of Object.entries(constants)) {
    environment.setVariable(name, noteOrigin(runtimeValue(value), Origin.template))
  }
  for (const [name, value] of Object.entries(request)) environment.setVariable(name, runtimeValue(value))
  const messages = runtimeValue(request.messages)
  for (const message of messages.value as { value: Map<string, RuntimeValue> }[]) noteMessage(message.value)
  environment.setVariable('messages', messages)
  return environment
}

/** The system prompt and the model's own words may use `<think>` and `<tool_call>`; users and tools may not. */
function noteMessage(message: ReadonlyMap<string, RuntimeValue>): void {
  const role = message.get('role')
  if (role !== undefined) noteOrigin(role, Origin.template)
  if (role?.value !== 'system' && role?.value !== 'assistant') return
  for (const name of ['content', 'reasoning_content', 'thinking']) {
    const text = message.get(name)
    if (text !== undefined) noteOrigin(text, Origin.trusted)
  }
}

function noteOrigin(value: RuntimeValue, origin: Origin): RuntimeValue {
  return typeof value.value === 'string' ? notePieces(value, [{ length: value.value.length, origin }]) : value
}

/** Numbers, lists and the like are the caller's: the template's own of them spell no tokens. */
function piecesOfValue(value: RuntimeValue, length: number): readonly Piece[] {
  return typeof value.value === 'string' ? piecesOf(value, length) : [{ length, origin: Origin.client }]
}

/** What an operation made of a string or list, told how by `args`, is as trusted as the least of them. */
function noteWeakest(result: RuntimeValue, operand: RuntimeValue, args: readonly RuntimeValue[]): RuntimeValue {
  const origin = Math.min(originOf(operand), ...args.map(argumentOrigin))
  const made = result.type === 'ArrayValue' ? (result.value as RuntimeValue[]) : [result]
  if (origin !== Origin.client) for (const value of made) if (!isNoted(value)) noteOrigin(value, origin)
  return result
}

function originOf(value: RuntimeValue): Origin {
  if (typeof value.value === 'string') return weakestOrigin(piecesOf(value, value.value.length))
  if (value.type !== 'ArrayValue' && value.type !== 'TupleValue') return Origin.client
  return (value.value as RuntimeValue[]).reduce((weakest, item) => Math.min(weakest, originOf(item)), Origin.template)
}

/** Numbers and flags say how something is done; none of their characters get into what it gives. */
function argumentOrigin(value: RuntimeValue): Origin {
  return ['IntegerValue', 'FloatValue', 'BooleanValue', 'NullValue'].includes(value.type)
    ? Origin.template
    : originOf(value)
}

/** The string without something at its ends. */
function noteStripped(result: RuntimeValue, whole: RuntimeValue): RuntimeValue {
  return notePart(result, whole, (whole.value as string).indexOf(result.value as string))
}

function notePart(part: RuntimeValue, whole: RuntimeValue, start: number): RuntimeValue {
  const pieces = piecesOf(whole, (whole.value as string).length)
  return notePieces(part, slicePieces(pieces, start, (part.value as string).length))
}

function globals(): [string, unknown][] {
  return [
    ['true', true],
    ['True', true],
    ['false', false],
    ['False', false],
    ['none', null],
    ['None', null],
    ['range', range],
    ['strftime_now', (format: string) => formatTime(new Date(), format)],
    [
      'raise_exception',
      (message: unknown) => {
        throw new Error(String(message))
      },
    ],
  ]
}

function range(first: number, second?: number, step = 1): number[] {
  const [start, stop] = second === undefined ? [0, first] : [first, second]
  if (step === 0) throw new Error('range() with a step of 0')
  const count = Math.max(0, Math.ceil((stop - start) / step))
  if (!(count <= LIST_LIMIT)) throw new Error(`range() of ${count} numbers, more than ${LIST_LIMIT}`)
  return Array.from({ length: count }, (_, i) => start + i * step)
}

/** Python's strftime, as far as templates go: the date, for models that want to know it. */
function formatTime(now: Date, format: string): string {
  const two = (value: number) => String(value).padStart(2, '0')
  const name = (options: Intl.DateTimeFormatOptions) => new Intl.DateTimeFormat('en-US', options).format(now)
  const parts: Record<string, () => string> = {
    Y: () => String(now.getFullYear()),
    m: () => two(now.getMonth() + 1),
    d: () => two(now.getDate()),
    B: () => name({ month: 'long' }),
    b: () => name({ month: 'short' }),
    A: () => name({ weekday: 'long' }),
    a: () => name({ weekday: 'short' }),
    H: () => two(now.getHours()),
    M: () => two(now.getMinutes()),
    S: () => two(now.getSeconds()),
    '%': () => '%',
  }
  return format.replace(/%(.)/g, (all, code: string) => (Object.hasOwn(parts, code) ? parts[code]() : all))
}

function runtimeValue(value: unknown): RuntimeValue {
  return new Environment().set('value', value)
}

const completed = new WeakSet<Builtins>()

/**
 * The methods of strings, made to keep track of pieces; and Python's strip, lstrip and rstrip take the characters to
 * strip, where the library's ignore them and strip all whitespace.
 */
function completeStringMethods(): void {
  const prototype = Object.getPrototypeOf(runtimeValue('')) as { moefluxMethods?: true }
  if (prototype.moefluxMethods) return
  const FunctionValue = runtimeValue(() => null).constructor as new (call: Call) => RuntimeValue
  const original = Object.getOwnPropertyDescriptor(prototype, 'builtins')!.get!
  Object.defineProperty(prototype, 'builtins', {
    get(this: RuntimeValue & { value: string }) {
      const builtins = original.call(this) as Builtins
      if (completed.has(builtins)) return builtins
      completed.add(builtins)
      for (const [name, method] of builtins) {
        if (method.type !== 'FunctionValue') continue
        const call = method.value as Call
        const note = name === 'split' ? noteParts : noteWeakest
        builtins.set(name, new FunctionValue((args, environment) => note(call(args, environment), this, args)))
      }
      for (const [name, left, right] of [
        ['strip', true, true],
        ['lstrip', true, false],
        ['rstrip', false, true],
      ] as const) {
        const strip: Call = args => noteStripped(runtimeValue(stripped(this.value, args[0]?.value, left, right)), this)
        builtins.set(name, new FunctionValue(strip))
      }
      return builtins
    },
  })
  prototype.moefluxMethods = true
}

/** The parts of a string, which stand in it in their order with the separator, or else whitespace, between them. */
function noteParts(parts: RuntimeValue, whole: RuntimeValue, args: readonly RuntimeValue[]): RuntimeValue {
  const text = whole.value as string
  const separator = args[0]?.value
  let at = 0
  for (const part of parts.value as RuntimeValue[]) {
    const own = part.value as string
    if (typeof separator !== 'string') at = text.indexOf(own, at)
    notePart(part, whole, at)
    at += own.length + (typeof separator === 'string' ? separator.length : 0)
  }
  return parts
}

function stripped(text: string, characters: unknown, left: boolean, right: boolean): string {
  const drop = typeof characters === 'string' ? new Set(characters) : null
  const gone = (character: string) => (drop === null ? character.trim() === '' : drop.has(character))
  let start = 0
  let end = text.length
  while (left && start < end && gone(text[start])) start++
  while (right && end > start && gone(text[end - 1])) end--
  return text.slice(start, end)
}
