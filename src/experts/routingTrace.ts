// A recording of which experts a model's tokens were routed to, step by step, and what the engine counted meanwhile. As a
// file: one line of JSON, then the experts as 16-bit numbers, for each step [layers, tokens, K]. Pure.
import { FormatError } from '../errors.js'

export interface TraceStep {
  readonly tokens: number
  readonly experts: Uint16Array // [layers, tokens, K]
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

const formatName = 'moeflux-trace'
const version = 1
const longestHeader = 16 << 20

export function encodeTrace(trace: RoutingTrace): Uint8Array {
  const { steps, ...facts } = trace
  const header = { format: formatName, version, ...facts, stepTokens: steps.map(step => step.tokens) }
  const text = new TextEncoder().encode(`${JSON.stringify(header)}\n`)
  const bytes = new Uint8Array(text.length + steps.reduce((sum, step) => sum + step.experts.byteLength, 0))
  bytes.set(text)
  let at = text.length
  for (const { experts } of steps) {
    bytes.set(new Uint8Array(experts.buffer, experts.byteOffset, experts.byteLength), at)
    at += experts.byteLength
  }
  return bytes
}

export function decodeTrace(bytes: Uint8Array, file: string): RoutingTrace {
  const bad = (detail: string, options?: ErrorOptions) => new FormatError('BAD_TRACE', file, detail, options)
  const end = bytes.subarray(0, longestHeader).indexOf(10)
  if (end < 0) throw bad('is not a trace: it has no first line')
  let header: Record<string, unknown>
  try {
    header = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(0, end)))
  } catch (cause) {
    throw bad('is not a trace: the first line is not JSON', { cause })
  }
  if (header?.format !== formatName || header.version !== version) {
    throw bad(`format is ${JSON.stringify(header?.format)}, version ${header?.version}; want ${formatName}, ${version}`)
  }
  const {
    format: _format,
    version: _version,
    stepTokens,
    ...facts
  } = header as unknown as TraceFacts & {
    format: string
    version: number
    stepTokens: number[]
  }
  for (const field of ['layers', 'experts', 'expertsPerToken', 'expertBytes'] as const) {
    if (!Number.isSafeInteger(facts[field]) || facts[field] < 1) throw bad(`${field} is ${facts[field]}, want a count`)
  }
  if (!Array.isArray(stepTokens) || !stepTokens.every(tokens => Number.isSafeInteger(tokens) && tokens > 0)) {
    throw bad('stepTokens is not a list of counts')
  }
  const perToken = facts.layers * facts.expertsPerToken
  const want = stepTokens.reduce((sum, tokens) => sum + tokens * perToken * 2, 0)
  if (bytes.length - end - 1 !== want) throw bad(`has ${bytes.length - end - 1} bytes of routing, want ${want}`)
  const numbers = new Uint16Array(new Uint8Array(bytes.subarray(end + 1)).buffer)
  if (numbers.some(expert => expert >= facts.experts)) throw bad(`names an expert past the last of ${facts.experts}`)
  let at = 0
  const steps = stepTokens.map(tokens => {
    const experts = numbers.subarray(at, at + tokens * perToken)
    at += experts.length
    return { tokens, experts }
  })
  return { ...facts, steps }
}

/** The distinct experts of all tokens of a step in one layer, ascending: what the streamer is asked for. */
export function unionOf(step: TraceStep, layer: number, expertsPerToken: number): number[] {
  const at = layer * step.tokens * expertsPerToken
  return [...new Set(step.experts.subarray(at, at + step.tokens * expertsPerToken))].sort((a, b) => a - b)
}
