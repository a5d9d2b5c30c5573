// The animated PNG of the README: its chunks, and what is drawn of them.
import { deflateSync, inflateSync } from 'node:zlib'
import { expect, test } from 'vitest'
import { decodePng, encodeAnimation } from '../../src/lab/pictures/animatedPng.mjs'

const RED = [255, 0, 0]
const BLUE = [0, 0, 255]
const WHITE = [255, 255, 255]

/** Three by two pixels, all white but one. */
function frame(at: number, colour: readonly number[], ms: number) {
  const all = Array.from({ length: 6 }, (_, i) => (i === at ? colour : WHITE))
  return { width: 3, height: 2, pixels: Uint8Array.from(all.flat()), ms }
}

interface Chunk {
  readonly type: string
  readonly body: Buffer
}

function chunksOf(file: Buffer): Chunk[] {
  const chunks: Chunk[] = []
  for (let at = 8; at < file.length; ) {
    const length = file.readUInt32BE(at)
    chunks.push({ type: file.toString('latin1', at + 4, at + 8), body: file.subarray(at + 8, at + 8 + length) })
    at += length + 12
  }
  return chunks
}

/** What is on the screen after each frame, as palette entries. */
function drawn(chunks: readonly Chunk[]): number[][] {
  const screen = Array.from({ length: 6 }, () => -1)
  const controls = chunks.filter(({ type }) => type === 'fcTL')
  const parts = chunks.filter(({ type }) => type === 'fdAT')
  return controls.map(({ body }, i) => {
    const [width, height, x, y] = [4, 8, 12, 16].map(at => body.readUInt32BE(at))
    const rows = inflateSync(parts[i].body.subarray(4))
    for (let row = 0; row < height; row++) {
      for (let column = 0; column < width; column++) {
        const index = rows[row * (width + 1) + 1 + column]
        if (index !== 0) screen[(y + row) * 3 + x + column] = index
      }
    }
    return [...screen]
  })
}

test('draws every frame, and keeps one that changes nothing on the screen for longer', () => {
  const file = encodeAnimation([frame(0, RED, 100), frame(0, RED, 50), frame(4, BLUE, 30), frame(5, RED, 1000)])
  const chunks = chunksOf(file)
  const palette = chunks.find(({ type }) => type === 'PLTE')!.body
  const colour = (index: number) => [...palette.subarray(3 * index, 3 * index + 3)]
  const screens = drawn(chunks).map(screen => screen.map(colour))
  const want = [frame(0, RED, 0), frame(4, BLUE, 0), frame(5, RED, 0)]
  expect(screens.map(screen => screen.flat())).toEqual(want.map(({ pixels }) => [...pixels]))
  const delays = chunks.filter(({ type }) => type === 'fcTL').map(({ body }) => body.readUInt16BE(20))
  expect(delays).toEqual([150, 30, 1000])
  const sequence = chunks.filter(({ type }) => /^f[cd]/.test(type)).map(({ body }) => body.readUInt32BE(0))
  expect(sequence).toEqual([0, 1, 2, 3, 4, 5])
})

test('keeps the 255 colours that are used most, and shows others as the nearest', () => {
  const greys = Array.from({ length: 256 }, (_, i) => [i, i, i])
  const often = greys.slice(1).flatMap(grey => [grey, grey])
  const all = [...often, [0, 0, 0], WHITE]
  const file = encodeAnimation([{ width: 32, height: 16, pixels: Uint8Array.from(all.flat()), ms: 10 }])
  const chunks = chunksOf(file)
  const palette = chunks.find(({ type }) => type === 'PLTE')!.body
  const rows = inflateSync(chunks.find(({ type }) => type === 'IDAT')!.body)
  const last = rows.subarray(15 * 33 + 1, 16 * 33)
  const shown = [...last].slice(-2).map(index => palette[3 * index])
  expect(shown).toEqual([1, 255])
})

test('reads pictures of all filters, and refuses those with a palette', () => {
  const rows = [
    [0, 10, 20, 30, 40, 50, 60],
    [1, 1, 2, 3, 4, 5, 6], // added to the pixel on the left
    [2, 9, 9, 9, 9, 9, 9], // to the one above
    [3, 1, 1, 1, 1, 1, 1], // to the mean of both
    [4, 5, 5, 5, 5, 5, 5], // to the nearest of both and the corner
  ]
  const header = Buffer.from([0, 0, 0, 2, 0, 0, 0, 5, 8, 2, 0, 0, 0])
  const chunk = (type: string, body: Buffer) => {
    const length = Buffer.alloc(4)
    length.writeUInt32BE(body.length)
    return Buffer.concat([length, Buffer.from(type, 'latin1'), body, Buffer.alloc(4)])
  }
  const data = deflateSync(Buffer.from(rows.flat()))
  const file = Buffer.concat([Buffer.alloc(8), chunk('IHDR', header), chunk('IDAT', data)])
  const { width, height, pixels } = decodePng(file)
  expect([width, height]).toEqual([2, 5])
  const row = (y: number) => [...pixels.subarray(6 * y, 6 * y + 6)]
  expect(row(0)).toEqual([10, 20, 30, 40, 50, 60])
  expect(row(1)).toEqual([1, 2, 3, 5, 7, 9])
  expect(row(2)).toEqual([10, 11, 12, 14, 16, 18])
  expect(row(3)).toEqual([6, 6, 7, 11, 12, 13])
  expect(row(4)).toEqual([11, 11, 12, 16, 17, 18])
  expect(() => decodePng(encodeAnimation([frame(0, RED, 100)]))).toThrow('want 8 bits, RGB or RGBA')
})
