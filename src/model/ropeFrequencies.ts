// The angles of rotary position embedding: how far each pair of channels turns from one position to the next.
import type { RopeShape } from './layers.js'

export interface RopeFrequencies {
  readonly frequencies: Float64Array // [dims / 2], radians per position
  readonly magnitude: number // cos and sin are multiplied with it
}

export function ropeFrequencies({ dims, theta, yarn }: RopeShape): RopeFrequencies {
  const frequencies = Float64Array.from({ length: dims / 2 }, (_, i) => theta ** ((-2 * i) / dims))
  if (yarn === null) return { frequencies, magnitude: 1 }
  // The channel that turns `turns` times in the original context.
  const channelOf = (turns: number) =>
    (dims * Math.log(yarn.originalContext / (2 * Math.PI * turns))) / (2 * Math.log(theta))
  const round = (value: number, how: (value: number) => number) => (yarn.truncate ? how(value) : value)
  const from = Math.max(0, round(channelOf(yarn.betaFast), Math.floor))
  const to = Math.min(dims - 1, round(channelOf(yarn.betaSlow), Math.ceil))
  const width = Math.max(to - from, 0.001) // where both are one channel
  const scaled = frequencies.map((frequency, i) => {
    const ramp = Math.min(1, Math.max(0, (i - from) / width))
    return frequency * (1 - ramp) + (frequency / yarn.factor) * ramp
  })
  return { frequencies: scaled, magnitude: yarn.attentionFactor }
}
