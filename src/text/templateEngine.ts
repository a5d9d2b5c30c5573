// Renders one chat template with @huggingface/jinja. Runs inside a worker (templateWorker.ts), where an endless or
// greedy template can be stopped from outside; here the size of every value is bounded, because one huge allocation
// would end not only the worker but the process. Also closes gaps of the library against Python's Jinja that chat
// templates rely on.
import * as jinja from '@huggingface/jinja'

const LIST_LIMIT = 1_000_000

export type TemplateVariables = Readonly<Record<string, unknown>>

// The library's own types of these do not resolve outside of it.
interface RuntimeValue {
  readonly type: string
  readonly value: unknown
}
interface EnvironmentType {
  set(name: string, value: unknown): RuntimeValue
  setVariable(name: string, value: RuntimeValue): void
}
interface InterpreterType {
  run(program: unknown): RuntimeValue
  evaluate(statement: unknown, environment: EnvironmentType): RuntimeValue
  applyFilter(operand: RuntimeValue, filter: FilterNode, environment: EnvironmentType): RuntimeValue
}
interface FilterNode {
  readonly type: string
  readonly value?: unknown
}
type Builtins = Map<string, RuntimeValue>

const Environment = jinja.Environment as unknown as new () => EnvironmentType
const Interpreter = jinja.Interpreter as unknown as new (environment: EnvironmentType) => InterpreterType

/** No string longer than the output may be, no list longer than `range` may be: checked after every expression. */
class BoundedInterpreter extends Interpreter {
  constructor(
    environment: EnvironmentType,
    private readonly maxOutput: number,
  ) {
    super(environment)
  }

  override evaluate(statement: unknown, environment: EnvironmentType): RuntimeValue {
    const result = super.evaluate(statement, environment)
    const { value } = result
    if (typeof value === 'string' && value.length > this.maxOutput) {
      throw new Error(`a text of ${value.length} characters, more than ${this.maxOutput}`)
    }
    if (Array.isArray(value) && value.length > LIST_LIMIT) {
      throw new Error(`a list of ${value.length} values, more than ${LIST_LIMIT}`)
    }
    return result
  }

  /** Python's `string` writes True, False and None, which the library writes otherwise or refuses. */
  override applyFilter(operand: RuntimeValue, filter: FilterNode, environment: EnvironmentType): RuntimeValue {
    if (filter.type === 'Identifier' && filter.value === 'string') {
      if (operand.type === 'BooleanValue') return runtimeValue(operand.value ? 'True' : 'False')
      if (operand.type === 'NullValue') return runtimeValue('None')
    }
    return super.applyFilter(operand, filter, environment)
  }
}

export type Rendering = { readonly text: string } | { readonly error: string }

/** Renders the same template with several sets of variables; each may fail on its own. */
export function renderTemplate(source: string, sets: readonly TemplateVariables[], maxOutput: number): Rendering[] {
  let parsed: unknown
  try {
    ;({ parsed } = new jinja.Template(source))
  } catch (cause) {
    // The library looks past the last token of a template that is cut off, which says nothing to people.
    const detail = cause instanceof TypeError ? 'it seems to be cut off' : messageOf(cause)
    return sets.map(() => ({ error: `does not parse: ${detail}` }))
  }
  completeStringMethods()
  return sets.map(variables => renderOne(parsed, variables, maxOutput))
}

function renderOne(parsed: unknown, variables: TemplateVariables, maxOutput: number): Rendering {
  try {
    const environment = new Environment()
    for (const [name, value] of globals()) environment.set(name, value)
    for (const [name, value] of Object.entries(variables)) environment.setVariable(name, runtimeValue(value))
    return { text: new BoundedInterpreter(environment, maxOutput).run(parsed).value as string }
  } catch (cause) {
    return { error: messageOf(cause) }
  }
}

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause)
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

/** Python's strip, lstrip and rstrip take the characters to strip; the library's ignore them and strip all whitespace. */
function completeStringMethods(): void {
  const prototype = Object.getPrototypeOf(runtimeValue('')) as { moefluxStrips?: true }
  if (prototype.moefluxStrips) return
  const FunctionValue = runtimeValue(() => null).constructor as new (
    call: (args: { value: unknown }[]) => RuntimeValue,
  ) => RuntimeValue
  const original = Object.getOwnPropertyDescriptor(prototype, 'builtins')!.get!
  Object.defineProperty(prototype, 'builtins', {
    get(this: { value: string }) {
      const builtins = original.call(this) as Builtins
      for (const [name, left, right] of [
        ['strip', true, true],
        ['lstrip', true, false],
        ['rstrip', false, true],
      ] as const) {
        const strip = (args: { value: unknown }[]) => runtimeValue(stripped(this.value, args[0]?.value, left, right))
        builtins.set(name, new FunctionValue(strip))
      }
      return builtins
    },
  })
  prototype.moefluxStrips = true
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
