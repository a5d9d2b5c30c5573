import { expect, test } from 'vitest'
import { ChunkPace } from '#moeflux/backends/webgpu/chunkSizer.js'

test('steps become as long as the GPU is fast, and short again where it is not', () => {
  const pace = new ChunkPace(512, 2048)
  expect(pace.tokens).toBe(512)
  pace.took(16, 1) // too short to tell
  expect(pace.tokens).toBe(512)
  pace.took(512, 50)
  expect(pace.tokens).toBe(2048)
  pace.took(2048, 700)
  expect(pace.tokens).toBe(512)
  pace.took(512, 120)
  expect(pace.tokens).toBe(1024)
  pace.took(700, 10_000)
  expect(pace.tokens).toBe(512)
})

test('one length is never left', () => {
  const pace = new ChunkPace(512, 512)
  pace.took(512, 1)
  expect(pace.tokens).toBe(512)
})
