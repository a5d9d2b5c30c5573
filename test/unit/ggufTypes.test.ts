// Every GGUF type that is read: its values to the bit against other implementations' (test/data/gguf), and what it
// becomes in the packed layout.
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { type GgufFile, openGgufFile } from '#moeflux/gguf/ggufFile.js'
import { joinTargets, type MatrixTarget, RelaidMatrix, targetOf } from '#moeflux/gguf/relaidMatrix.js'
import { dequantizeRows } from '#moeflux/model/quantize.js'
import { openFileSource } from '#moeflux/storage/fileSource.js'
import { readSafetensorsHeader } from '#moeflux/storage/safetensors.js'
import { expectSameBits } from '../support/bands.js'
import { buildGguf, typeId } from '../support/ggufWriter.js'
import { memorySource } from '../support/memoryFiles.js'
import { repository } from '../support/packedFiles.js'

const data = (name: string) => join(repository, 'test/data/gguf', name)
const open = (name: string) => openGgufFile(data(name), openFileSource)

/** Scales below 2^-14 are multiples of 2^-24, and a code is at most 255 of them. */
const SUBNORMAL = 2 ** -25 * 256
const F16 = { kind: 'affine', scaleType: 'F16' } as const
const types: readonly (readonly [name: string, target: MatrixTarget, largestError: number])[] = [
  // The last column: of the largest value in a group of 32, at most. What F16 cannot say below 2^-14 comes on top.
  ['F32', { kind: 'plain', type: 'F32' }, 0],
  ['F16', { kind: 'plain', type: 'F16' }, 0],
  ['BF16', { kind: 'plain', type: 'BF16' }, 0],
  ['Q4_0', { ...F16, bits: 4 }, 0],
  ['Q4_1', { ...F16, bits: 4 }, 0],
  ['Q5_0', { ...F16, bits: 8 }, 0],
  ['Q5_1', { ...F16, bits: 8 }, 0],
  ['Q8_0', { ...F16, bits: 8 }, 0],
  ['IQ4_NL', { ...F16, bits: 8 }, 0],
  ['MXFP4', { kind: 'affine', bits: 8, scaleType: 'BF16' }, 0],
  ['Q4_K', { ...F16, bits: 4 }, 2 ** -10],
  ['Q5_K', { ...F16, bits: 8 }, 2 ** -10],
  ['IQ4_XS', { ...F16, bits: 8 }, 2 ** -11],
  ['Q2_K', { ...F16, bits: 8 }, 2 ** -7],
  ['Q3_K', { ...F16, bits: 8 }, 2 ** -7],
  ['Q6_K', { ...F16, bits: 8 }, 2 ** -7],
]

describe('blocks of random bits', () => {
  let file: GgufFile
  const golden = new Map<string, Float32Array>()
  beforeAll(async () => {
    file = await open('types.gguf')
    const source = await openFileSource(data('types.safetensors'))
    for (const { name, offset, size } of (await readSafetensorsHeader(source)).tensors.values()) {
      const bytes = new Uint8Array(size)
      await source.read(offset, bytes)
      golden.set(name, new Float32Array(bytes.buffer))
    }
    await source.close()
    return () => file.close()
  })

  test('all types of the file are looked at', () => {
    expect([...file.tensors.values()].map(({ type }) => type.name).sort()).toEqual(types.map(([name]) => name).sort())
  })

  test.each(types)('%s', async (name, target, largestError) => {
    const tensor = [...file.tensors.values()].find(({ type }) => type.name === name)!
    const [rows, cols] = tensor.shape
    const matrix = new RelaidMatrix(tensor, rows, cols, targetOf(tensor))
    expect(matrix.target).toEqual(target)
    const want = golden.get(tensor.name)!
    expectSameBits(await matrix.values(0, rows), want, name)
    if (target.kind === 'plain') return
    const got = await relaid(matrix)
    expect(errorOf(got, want)).toBeLessThanOrEqual(largestError)
    if (largestError > 0) expect(errorOf(got, want)).toBeGreaterThan(0)
    // A row in the middle is what it is among the others.
    const { weight, scales } = await matrix.read(1, 1)
    const all = await matrix.read(0, rows)
    expect(weight).toEqual(all.weight.subarray(weight.length, 2 * weight.length))
    expect(scales).toEqual(all.scales.subarray(scales.length, 2 * scales.length))
  })

  test.each(types.filter(([, target]) => target.kind === 'affine'))('%s among wider ones', async name => {
    const tensor = [...file.tensors.values()].find(({ type }) => type.name === name)!
    const [rows, cols] = tensor.shape
    const own = await relaid(new RelaidMatrix(tensor, rows, cols, targetOf(tensor)))
    const wide = await relaid(new RelaidMatrix(tensor, rows, cols, { ...F16, bits: 8 }))
    if (name !== 'MXFP4') expectSameBits(wide, own)
    const floats = await new RelaidMatrix(tensor, rows, cols, { kind: 'plain', type: 'F32' }).read(0, rows)
    expectSameBits(new Float32Array(floats.weight.buffer), golden.get(tensor.name)!)
  })
})

test('types that are not read are refused by name', async () => {
  const file = await open('types-iq.gguf')
  expect(file.tensors.size).toBeGreaterThan(4)
  for (const tensor of file.tensors.values()) {
    expect(() => targetOf(tensor)).toThrow(tensor.type.name)
    expect(() => targetOf(tensor)).toThrow('Q4_K')
  }
  await file.close()
})

test('a scale past what 16 bits hold is refused, not made infinite', async () => {
  const block = new Uint8Array(34)
  block.set([0x00, 0x7b], 0) // 57344
  block[2] = 127
  const bytes = buildGguf({ tensors: [{ name: 'a', shape: [1, 32], type: typeId('Q8_0'), data: block }] })
  const file = await openGgufFile('a.gguf', async name => memorySource(bytes, name))
  const tensor = file.tensors.get('a')!
  await expect(new RelaidMatrix(tensor, 1, 32, targetOf(tensor)).read(0, 1)).rejects.toThrow('past what F16 holds')
})

test('experts of several types get a form that holds them all', () => {
  const four: MatrixTarget = { ...F16, bits: 4 }
  const eight: MatrixTarget = { ...F16, bits: 8 }
  const mx: MatrixTarget = { kind: 'affine', bits: 8, scaleType: 'BF16' }
  const plain = (type: 'F16' | 'BF16' | 'F32'): MatrixTarget => ({ kind: 'plain', type })
  expect(joinTargets([four, four])).toEqual(four)
  expect(joinTargets([four, eight])).toEqual(eight)
  expect(joinTargets([mx, mx])).toEqual(mx)
  expect(joinTargets([mx, four])).toEqual(eight)
  expect(joinTargets([plain('BF16'), plain('BF16')])).toEqual(plain('BF16'))
  expect(joinTargets([plain('F16'), four])).toEqual(plain('F16'))
  expect(joinTargets([plain('BF16'), four])).toEqual(plain('F32'))
  expect(joinTargets([plain('BF16'), plain('F16')])).toEqual(plain('F32'))
})

async function relaid(matrix: RelaidMatrix): Promise<Float32Array> {
  const { rows, cols, target } = matrix
  if (target.kind !== 'affine') throw new Error('floats')
  const out = new Float32Array(rows * cols)
  dequantizeRows({ ...(await matrix.read(0, rows)), scaleType: target.scaleType }, target.bits, 32, out)
  return out
}

/** The largest difference, each against the largest value of its group of 32. */
function errorOf(got: Float32Array, want: Float32Array): number {
  let largest = 0
  for (let g = 0; g < want.length; g += 32) {
    const size = Math.max(...want.subarray(g, g + 32).map(Math.abs))
    for (let i = g; i < g + 32; i++) {
      const difference = Math.abs(got[i] - want[i])
      if (difference > 0) largest = Math.max(largest, (difference - SUBNORMAL) / size)
    }
  }
  return largest
}
