// Helpers for tests of files at rest: temporary folders, conversions, tensors read back from a packed folder, and whole
// folders compared by their bytes.
import { createHash } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'
import { readSafetensorsHeader } from '#moeflux/files/convert/safetensors.js'
import { openFileSource } from '#moeflux/files/fileSource.js'
import { blockFormat, dequantizeBlocks } from '#moeflux/model/blockFormats.js'
import { widenFloats } from '#moeflux/model/floats.js'
import { dequantizeRows } from '#moeflux/model/quantize.js'
import type { Matrix, Vector } from '#moeflux/model/tensors.js'

export const repository = fileURLToPath(new URL('../../..', import.meta.url))
export const demoSource = join(repository, 'demo-model')
export const tinySource = join(repository, 'test/data/tiny-bf16')
export const tinyFusedSource = join(repository, 'test/data/tiny-bf16/fused')

/** A fresh folder that goes when the test ends. */
export function temporaryFolder(finished: (remove: () => void) => void = onTestFinished): string {
  const folder = mkdtempSync(join(tmpdir(), 'moeflux-test-'))
  finished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** Name and hash of every file below a folder. */
export function hashFolder(folder: string): Map<string, string> {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile())
  const paths = files.map(entry => join(entry.parentPath, entry.name)).sort()
  return new Map(
    paths.map(path => [relative(folder, path), createHash('sha256').update(readFileSync(path)).digest('hex')]),
  )
}

/** All values of a matrix whose ranges point into `bytes`. */
export function matrixValues(matrix: Matrix, bytes: Uint8Array): Float32Array {
  const out = new Float32Array(matrix.rows * matrix.cols)
  const cut = ({ offset, size }: { offset: number; size: number }) => bytes.subarray(offset, offset + size)
  if (matrix.kind === 'plain') widenFloats(matrix.type, cut(matrix.weight), out)
  else if (matrix.kind === 'blocks') {
    dequantizeBlocks(blockFormat(matrix.block), matrix.span, cut(matrix.weight), cut(matrix.scales), out)
  } else {
    const { bits, group, scaleType } = matrix
    const parts = { weight: cut(matrix.weight), scales: cut(matrix.scales), biases: cut(matrix.biases), scaleType }
    dequantizeRows(parts, bits, group, out)
  }
  return out
}

export function vectorValues(vector: Vector, bytes: Uint8Array): Float32Array {
  const out = new Float32Array(vector.length)
  widenFloats(vector.type, bytes.subarray(vector.data.offset, vector.data.offset + vector.data.size), out)
  return out
}

/** Every F32 tensor of a small safetensors file. */
export async function readFloatTensors(path: string): Promise<Map<string, Float32Array>> {
  const source = await openFileSource(path)
  try {
    const { tensors } = await readSafetensorsHeader(source)
    const values = new Map<string, Float32Array>()
    for (const tensor of tensors.values()) {
      if (tensor.dtype !== 'F32') continue
      const bytes = new Uint8Array(tensor.size)
      await source.read(tensor.offset, bytes)
      values.set(tensor.name, new Float32Array(bytes.buffer))
    }
    return values
  } finally {
    await source.close()
  }
}

/** Values of all tensors of a table, by name. */
export function tensorValues(tensors: object, bytes: Uint8Array): Map<string, Float32Array> {
  const out = new Map<string, Float32Array>()
  const walk = (value: unknown): void => {
    if (Array.isArray(value)) value.forEach(walk)
    else if (value !== null && typeof value === 'object') {
      const tensor = value as Matrix & Vector
      if (typeof tensor.name !== 'string') Object.values(value).forEach(walk)
      else out.set(tensor.name, 'rows' in value ? matrixValues(tensor, bytes) : vectorValues(tensor, bytes))
    }
  }
  walk(tensors)
  return out
}
