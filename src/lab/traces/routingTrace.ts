// A recording of which experts a model's tokens were routed to, step by step, and what the engine counted meanwhile. As a
// file: one line of JSON, then the experts as 16-bit numbers, for each step [layers, tokens, K], then, where they were kept,
// the ids of the tokens as 32-bit numbers, and the router's weights as 32-bit floats, in the order of the experts.
// Little-endian; byte by byte in docs/formats.md. Pure.
import { FormatError } from '../../base/errors.js'

export interface TraceStep {
  readonly tokens: number
  readonly experts: Uint16Array // [layers, tokens, K]
  readonly ids?: Uint32Array // [tokens], where they were kept
  readonly weights?: Float32Array // [layers, tokens, K], what each expert counted for, where that was kept
}

export interface TraceFacts {
  readonly model: string
  readonly layers: number
  readonly experts: number // per layer
  readonly expertsPerToken: number
  readonly expertBytes: number
  /** What the engine did while this was recorded. */
  readonly engine: {
    readonly backend: string
    readonly policy: string
    readonly slots: number
    readonly hits: number
    readonly misses: number
    readonly computeSecondsPerToken: number // of decode steps, stalls left out
  }
}

export interface RoutingTrace extends TraceFacts {
  readonly steps: readonly TraceStep[]
}

const FORMAT_NAME = 'moeflux-trace'
const VERSION = 1
const LONGEST_HEADER = 16 << 20
const MOST_EXPERTS = 1 << 22 // of all layers; a simulation has memory for each

export function encodeTrace(trace: RoutingTrace): Uint8Array {
  const { steps, ...facts } = trace
  const hasIds = steps.every(step => step.ids !== undefined)
  const hasWeights = steps.every(step => step.weights !== undefined)
  const stepTokens = steps.map(step => step.tokens)
  const kept = { ...(hasIds && { tokenIds: true }), ...(hasWeights && { routerWeights: true }) }
  const text = new TextEncoder().encode(
    `${JSON.stringify({ format: FORMAT_NAME, version: VERSION, ...facts, ...kept, stepTokens })}\n`,
  )
  const parts: (Uint16Array | Uint32Array | Float32Array)[] = steps.map(step => step.experts)
  if (hasIds) parts.push(...steps.map(step => step.ids as Uint32Array))
  if (hasWeights) parts.push(...steps.map(step => step.weights as Float32Array))
  const bytes = new Uint8Array(text.length + parts.reduce((sum, part) => sum + part.byteLength, 0))
  bytes.set(text)
  let at = text.length
  for (const part of parts) {
    bytes.set(new Uint8Array(part.buffer, part.byteOffset, part.byteLength), at)
    at += part.byteLength
  }
  return bytes
}

export function decodeTrace(bytes: Uint8Array, file: string): RoutingTrace {
  const bad = (detail: string, options?: ErrorOptions) => new FormatError('BAD_TRACE', file, detail, options)
  const end = bytes.subarray(0, LONGEST_HEADER).indexOf(10)
  if (end < 0) throw bad('is not a trace: it has no first line')
  let header: Record<string, unknown>
  try {
    header = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(0, end)))
  } catch (cause) {
    throw bad('is not a trace: the first line is not JSON', { cause })
  }
  if (header?.format !== FORMAT_NAME) throw bad(`is not a trace: its format is not ${FORMAT_NAME}`)
  if (header.version !== VERSION) throw bad(`is a trace of another version than ${VERSION}`)
  const facts = readFacts(header, bad)
  const { stepTokens } = header
  if (!Array.isArray(stepTokens) || stepTokens.length === 0 || !stepTokens.every(tokens => isCount(tokens, 1))) {
    throw bad('stepTokens is not a list of counts')
  }
  const perToken = facts.layers * facts.expertsPerToken
  const allTokens = stepTokens.reduce((sum, tokens) => sum + tokens, 0)
  const sizes = [
    allTokens * perToken * 2,
    header.tokenIds === true ? allTokens * 4 : 0,
    header.routerWeights === true ? allTokens * perToken * 4 : 0,
  ]
  const want = sizes[0] + sizes[1] + sizes[2]
  if (bytes.length - end - 1 !== want) throw bad(`has ${bytes.length - end - 1} bytes of routing, want ${want}`)
  let at = end + 1
  const [experts16, ids32, weights32] = sizes.map(size => new Uint8Array(bytes.subarray(at, (at += size))).buffer) // copies begin where numbers of any size may
  const numbers = new Uint16Array(experts16)
  const ids = header.tokenIds === true ? new Uint32Array(ids32) : null
  const weights = header.routerWeights === true ? new Float32Array(weights32) : null
  if (numbers.some(expert => expert >= facts.experts)) throw bad(`names an expert past the last of ${facts.experts}`)
  if (weights?.some(weight => !(weight >= 0 && weight < Number.POSITIVE_INFINITY)))
    throw bad('has a weight that is none')
  let before = 0 // tokens
  const steps = stepTokens.map(tokens => {
    const routed = [before * perToken, (before + tokens) * perToken] as const
    const step = {
      tokens,
      experts: numbers.subarray(...routed),
      ...(ids && { ids: ids.subarray(before, before + tokens) }),
      ...(weights && { weights: weights.subarray(...routed) }),
    }
    before += tokens
    return step
  })
  return { ...facts, steps }
}

function readFacts(header: Record<string, unknown>, bad: (detail: string) => FormatError): TraceFacts {
  const engine = new Map(Object.entries((header.engine ?? {}) as object))
  const count = (name: string, value: unknown, least: number, most = Number.MAX_SAFE_INTEGER): number => {
    if (isCount(value, least, most)) return value
    throw bad(`${name} is ${typeof value === 'number' ? value : 'no number'}, want a count from ${least} to ${most}`)
  }
  const text = (name: string, value: unknown): string => {
    if (typeof value !== 'string') throw bad(`${name} is not text`)
    return value
  }
  const layers = count('layers', header.layers, 1, MOST_EXPERTS)
  const experts = count('experts', header.experts, 1, Math.min(2 ** 16, Math.floor(MOST_EXPERTS / layers)))
  const seconds = engine.get('computeSecondsPerToken')
  if (typeof seconds !== 'number' || !(seconds >= 0)) throw bad('engine.computeSecondsPerToken is not a time')
  return {
    model: text('model', header.model),
    layers,
    experts,
    expertsPerToken: count('expertsPerToken', header.expertsPerToken, 1, experts),
    expertBytes: count('expertBytes', header.expertBytes, 1),
    engine: {
      backend: text('engine.backend', engine.get('backend')),
      policy: text('engine.policy', engine.get('policy')),
      slots: count('engine.slots', engine.get('slots'), 1, 2 * MOST_EXPERTS),
      hits: count('engine.hits', engine.get('hits'), 0),
      misses: count('engine.misses', engine.get('misses'), 0),
      computeSecondsPerToken: seconds,
    },
  }
}

function isCount(value: unknown, least: number, most = Number.MAX_SAFE_INTEGER): value is number {
  return Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most
}

/** Traces of one model, one after the other, as if one engine had done all of it; null where they are of different models. */
export function joinTraces(traces: readonly RoutingTrace[]): RoutingTrace | null {
  const [first] = traces
  const fields = ['model', 'layers', 'experts', 'expertsPerToken', 'expertBytes'] as const
  if (traces.some(trace => fields.some(field => trace[field] !== first[field]))) return null
  return { ...first, steps: traces.flatMap(trace => trace.steps) }
}

/** The distinct experts of all tokens of a step in one layer, ascending: what the streamer is asked for. */
export function unionOf(step: TraceStep, layer: number, expertsPerToken: number): number[] {
  const at = layer * step.tokens * expertsPerToken
  return [...new Set(step.experts.subarray(at, at + step.tokens * expertsPerToken))].sort((a, b) => a - b)
}

/** The same with the number of tokens that chose each. */
export function tokensOfExperts(step: TraceStep, layer: number, expertsPerToken: number): Map<number, number> {
  const at = layer * step.tokens * expertsPerToken
  const tokens = new Map<number, number>(unionOf(step, layer, expertsPerToken).map(expert => [expert, 0]))
  for (const expert of step.experts.subarray(at, at + step.tokens * expertsPerToken)) {
    tokens.set(expert, (tokens.get(expert) as number) + 1)
  }
  return tokens
}
