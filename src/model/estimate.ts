// What a model needs of a machine and how fast it may run there, from bytes and rates alone. An estimate, made of stated
// assumptions; `bench` measures. Knows nothing of operating systems: memory and rates are given to it.
import type { ModelConfig } from './config.js'
import type { QuantFormat } from './quantizationConfig.js'
import {
  allExpertsBytes,
  expertBytes,
  FOUR_BIT,
  kvBytesPerToken,
  matrixBytes,
  recurrentBytes,
  residentBytes,
} from './sizes.js'

export interface ModelBytes {
  readonly expert: number
  readonly allExperts: number
  readonly resident: number
  readonly embedding: number // the part of `resident` of which a token reads one row only
}

/** Of a model of which only the shapes are known: as most are packed. */
export function fourBitBytes(config: ModelConfig): ModelBytes {
  return bytesIn(config, FOUR_BIT)
}

/** Of one whose matrices are all of one format; null: 16-bit floats. */
export function bytesIn(config: ModelConfig, format: QuantFormat | null): ModelBytes {
  return {
    expert: expertBytes(config, format),
    allExperts: allExpertsBytes(config, format),
    resident: residentBytes(config, format),
    // A tied embedding is the head as well, and a token computes with all of it.
    embedding: config.tieWordEmbeddings ? 0 : matrixBytes(config.vocabSize, config.hiddenSize, format),
  }
}

/**
 * What of a machine's memory a model may take: the system and what runs beside it need a quarter, on a large machine not
 * more than on one of 16 GB.
 */
export function usableMemory(total: number): number {
  return total - Math.min(total / 4, 4e9)
}

export interface MachineRates {
  readonly memory: number // bytes that a process may use
  readonly weightsPerSecond: number // bytes of weights that the compute gets through
  readonly readsPerSecond: number // bytes, random reads of one expert each
}

export interface Estimate {
  readonly contextTokens: number
  readonly stateBytes: number // of one sequence with that many tokens
  readonly leastMemory: number // the resident part, that sequence, and a token's experts of two layers
  readonly expertMemory: number // what is left for cached experts
  readonly cachedShare: number // of all experts
  readonly fits: 'everything' | 'streaming' | 'no' // 'no': not even `leastMemory`
  readonly bytesPerToken: number // of weights, that a token computes with
  readonly readPerToken: number // expected from disk
  readonly computeSeconds: number
  readonly readSeconds: number
  readonly tokensPerSecond: number
}

/** Reading and computing overlap, so the slower of the two decides. */
export function estimateModel(
  config: ModelConfig,
  bytes: ModelBytes,
  machine: MachineRates,
  contextTokens: number,
  expertsPerToken = config.expertsPerToken,
): Estimate {
  const stateBytes = contextTokens * kvBytesPerToken(config) + recurrentBytes(config)
  const room = machine.memory - bytes.resident - stateBytes
  // A layer's experts must have room while the next one's are read.
  const leastExperts = Math.min(bytes.allExperts, 2 * expertsPerToken * bytes.expert)
  const expertMemory = Math.max(0, Math.min(bytes.allExperts, room))
  const cachedShare = bytes.allExperts === 0 ? 1 : expertMemory / bytes.allExperts
  const expertsTouched = config.moeLayers.length * expertsPerToken * bytes.expert
  const bytesPerToken = bytes.resident - bytes.embedding + expertsTouched
  // Uniform routing is the worst case: real routing is skewed, and a cache of some share hits more often than that.
  const readPerToken = expertsTouched * (1 - cachedShare)
  const computeSeconds = bytesPerToken / machine.weightsPerSecond
  const readSeconds = readPerToken / machine.readsPerSecond
  return {
    contextTokens,
    stateBytes,
    leastMemory: bytes.resident + stateBytes + leastExperts,
    expertMemory,
    cachedShare,
    fits:
      cachedShare === 1 && room >= bytes.allExperts
        ? 'everything'
        : bytes.allExperts > 0 && expertMemory >= leastExperts
          ? 'streaming'
          : 'no',
    bytesPerToken,
    readPerToken,
    computeSeconds,
    readSeconds,
    tokensPerSecond: 1 / Math.max(computeSeconds, readSeconds),
  }
}
