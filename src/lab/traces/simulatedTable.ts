// What a replay of traces gives, whatever the number of tiers.
import { formatBytes, threeDigits } from '../../apps/cli/format.js'

/** Numbers of all rows, and the same for people. */
export interface SimulatedTable {
  readonly rows: readonly Readonly<Record<string, string | number | null>>[]
  readonly facts: Readonly<Record<string, number>> // that were assumed
  readonly assumed: string // the same in words
  readonly table: string
}

/** Who a replay is for. */
export interface ReplayHost {
  readonly signal: AbortSignal
  readonly width: number // of its lines
}

export interface ReplaySpeeds {
  readonly computeSeconds: number // of a token
  readonly diskBytesPerSecond: number
}

/** 'disk 1.20 GB/s, computing 2.46 ms per token'. */
export function speedsInWords({ computeSeconds, diskBytesPerSecond }: ReplaySpeeds): string {
  return `disk ${formatBytes(diskBytesPerSecond)}/s, computing ${threeDigits(computeSeconds * 1000)} ms per token`
}
