// A model that does not fit into memory: what it needs, what is free, and the options that would
// make it fit.
import { MoefluxError } from './errors.js'

/** An option that would help, and a value of it that would be enough. */
export interface Remedy {
  readonly option: 'expertMemory' | 'contextLength' | 'threads'
  readonly value: number
}

export interface MemoryShortage {
  readonly needed: number
  readonly free: number
  readonly limit: string // what sets it, in words
  readonly parts: readonly { readonly what: string; readonly bytes: number }[] // of `needed`
  readonly remedies: readonly Remedy[] // to take together
  readonly weightsRoom?: number // bytes of weights that would fit, of a model without experts
}

/** A model that would not fit, found out before anything of it is loaded. */
export class MemoryPlanError extends MoefluxError {
  constructor(
    readonly shortage: MemoryShortage,
    optionName: (option: string) => string = option => option,
  ) {
    const { needed, free, limit, parts, remedies, weightsRoom } = shortage
    const megabytes = (bytes: number) => `${Math.ceil(bytes / 1e6)} MB`
    const sum = parts.map(({ what, bytes }) => `${what} ${megabytes(bytes)}`).join(', ')
    const options = remedies.map(({ option, value }) => `${optionName(option)} ${value}`).join(' with ')
    super(
      'NOT_ENOUGH_MEMORY',
      `the model needs ${megabytes(needed)} (${sum}), and ${megabytes(free)} are free under ${limit}: ` +
        `${megabytes(needed - free)} too little. ${options === '' ? 'No option makes it fit' : `${options} would fit`}` +
        (weightsRoom === undefined ? '' : `. ${denseRoom(weightsRoom)}`),
    )
  }
}

const FOUR_BIT_BYTES = 0.5625 // a weight in 4 bits, with its share of scales

function denseRoom(bytes: number): string {
  const size = `${Math.floor(bytes / 1e6)} MB of weights`
  const parameters = (bytes / FOUR_BIT_BYTES / 1e9).toFixed(1)
  return `It has no experts that could stay on disk; ${size} would fit, about ${parameters} billion in 4 bits`
}
