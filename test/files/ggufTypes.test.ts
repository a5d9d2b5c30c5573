// Every GGUF type that is read: its values to the bit against other implementations' (test/data/gguf), and what it
// becomes in the packed layout.
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { readSafetensorsHeader } from '#moeflux/files/convert/safetensors.js'
import { openFileSource } from '#moeflux/files/fileSource.js'
import { type GgufFile, openGgufFile } from '#moeflux/files/gguf/ggufFile.js'
import { type MatrixTarget, RelaidMatrix, targetOf } from '#moeflux/files/gguf/repackedMatrix.js'
import { type BlockName, type BlockSpan, blockFormat, dequantizeBlocks } from '#moeflux/model/blockFormats.js'
import { widenFloats } from '#moeflux/model/floats.js'
import { dequantizeRows } from '#moeflux/model/quantize.js'
import { memorySource } from '../support/faults/memoryFiles.js'
import { buildGguf, typeId } from '../support/models/ggufWriter.js'
import { repository } from '../support/models/packedFiles.js'
import { expectSameBits } from '../support/ops/bands.js'

const data = (name: string) => join(repository, 'test/data/gguf', name)
const open = (name: string) => openGgufFile(data(name), openFileSource)

const affine = (bits: 4 | 8): MatrixTarget => ({ kind: 'affine', bits })
const blocks = (block: BlockName, span: BlockSpan = 256): MatrixTarget => ({ kind: 'blocks', block, span })
/** What each becomes: all of them keep their values to the bit. */
const types: readonly (readonly [name: string, target: MatrixTarget])[] = [
  ['F32', { kind: 'plain', type: 'F32' }],
  ['F16', { kind: 'plain', type: 'F16' }],
  ['BF16', { kind: 'plain', type: 'BF16' }],
  ['Q4_0', affine(4)],
  ['Q4_1', affine(4)],
  ['Q5_0', affine(8)],
  ['Q5_1', affine(8)],
  ['Q8_0', affine(8)],
  ['IQ4_NL', blocks('iq4_nl', 0)],
  ['MXFP4', blocks('mxfp4', 0)],
  ['Q4_K', blocks('q4_k')],
  ['Q5_K', blocks('q5_k')],
  ['IQ4_XS', blocks('iq4_xs')],
  ['Q2_K', blocks('q2_k')],
  ['Q3_K', blocks('q3_k')],
  ['Q6_K', blocks('q6_k')],
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

  const tensorOf = (name: string) => [...file.tensors.values()].find(({ type }) => type.name === name)!

  test.each(types)('%s', async (name, target) => {
    const tensor = tensorOf(name)
    const [rows, cols] = tensor.shape
    const matrix = new RelaidMatrix(tensor, rows, cols, targetOf(tensor, cols))
    expect(matrix.target).toEqual(target)
    const want = golden.get(tensor.name)!
    expectSameBits(await matrix.values(0, rows), want, name)
    expectSameValues(await relaid(matrix), want, name)
    // A row in the middle is what it is among the others.
    const { weight, scales } = await matrix.read(1, 1)
    const all = await matrix.read(0, rows)
    expect(weight).toEqual(all.weight.subarray(weight.length, 2 * weight.length))
    expect(scales).toEqual(all.scales.subarray(scales.length, 2 * scales.length))
    const floats = await new RelaidMatrix(tensor, rows, cols, { kind: 'plain', type: 'F32' }).read(0, rows)
    expectSameBits(new Float32Array(floats.weight.buffer), want, name)
  })

  test.each(types)('%s with columns moved by heads', async name => {
    const tensor = tensorOf(name)
    const [rows, cols] = tensor.shape
    for (const columnBlocks of [
      [3, 1, 0, 2], // of 128
      Array.from({ length: 16 }, (_, i) => (i * 5) % 16), // of 32
    ]) {
      const order = { columnBlocks }
      const target = targetOf(tensor, cols, order)
      const matrix = new RelaidMatrix(tensor, rows, cols, target, order)
      expectSameValues(await relaid(matrix), await matrix.values(0, rows), name)
      // Spans that would be cut are kept as floats.
      const isCut = columnBlocks.length === 16 && /_K$|IQ4_XS/.test(name)
      if (isCut) expect(target).toEqual({ kind: 'plain', type: 'F32' })
      else if (/_K$|IQ4_XS/.test(name)) expect(target).toMatchObject({ span: 128 })
    }
  })
})

test('types that are not read are refused by name', async () => {
  const file = await open('types-iq.gguf')
  expect(file.tensors.size).toBeGreaterThan(4)
  for (const tensor of file.tensors.values()) {
    expect(() => targetOf(tensor, tensor.shape[1])).toThrow(tensor.type.name)
    expect(() => targetOf(tensor, tensor.shape[1])).toThrow('Q4_K')
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
  await expect(new RelaidMatrix(tensor, 1, 32, targetOf(tensor, 32)).read(0, 1)).rejects.toThrow('past what F16 holds')
})

async function relaid(matrix: RelaidMatrix): Promise<Float32Array> {
  const { rows, cols, target } = matrix
  const out = new Float32Array(rows * cols)
  const stored = await matrix.read(0, rows)
  if (target.kind === 'plain') widenFloats(target.type, stored.weight, out)
  else if (target.kind === 'affine') dequantizeRows({ ...stored, scaleType: 'F16' }, target.bits, 32, out)
  else dequantizeBlocks(blockFormat(target.block), target.span, stored.weight, stored.scales, out)
  return out
}

/** To the bit, but for the sign of zero: s * 8 - 8 * s is 0 where s * 0 may be -0. */
function expectSameValues(got: Float32Array, want: Float32Array, what: string): void {
  const plus = (values: Float32Array) => values.map(value => value + 0)
  expectSameBits(plus(got), plus(want), what)
}
