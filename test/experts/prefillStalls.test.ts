// Whether a prompt's first layer should be read ahead, learned from what it waited for.
import { expect, test } from 'vitest'
import { PromptStalls } from '#moeflux/experts/prefetch.js'

/** Chunks of three layers; each as what the first layer waited, in milliseconds, and read. */
function answers(chunks: readonly (readonly [ms: number, reads: number])[]): boolean[][] {
  const stalls = new PromptStalls()
  let stallSeconds = 1
  let expertMisses = 10
  return chunks.map(([ms, reads]) => {
    const first = stalls.wantsHelp(0, { stallSeconds, expertMisses })
    stallSeconds += ms / 1000
    expertMisses += reads
    const second = stalls.wantsHelp(1, { stallSeconds, expertMisses })
    stallSeconds += 0.5 // of other layers, which were helped or not
    expertMisses += 5
    return [first, second, stalls.wantsHelp(2, { stallSeconds, expertMisses })]
  })
}

test('helps a disk that lets the first layer wait, and leaves one alone that does not', () => {
  expect(
    answers([
      [50, 8],
      [50, 8],
      [0.5, 8],
      [0.5, 8],
      [50, 8],
    ]),
  ).toEqual([
    [true, true, true],
    [true, true, true],
    [true, false, false],
    [false, false, false],
    [false, true, true],
  ])
})

test('learns nothing from a first layer that read nothing', () => {
  expect(
    answers([
      [0, 0],
      [0.5, 8],
      [0, 0],
    ]),
  ).toEqual([
    [true, true, true],
    [true, false, false],
    [false, false, false],
  ])
})
