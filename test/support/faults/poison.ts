// Puts NaN and infinity into the weights of a packed folder, in place and as long as a test likes.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { openPacked } from '#moeflux/files/packed/openPacked.js'

/** As BF16, and as the upper half of a float32. */
export const NAN = 0x7fc0
export const INFINITY = 0x7f80

/** Takes a poison out again. */
export type Antidote = () => void

/** The middle value of a resident tensor. */
export function poisonTensor(folder: string, name: string, value: number): Antidote {
  const { tensors } = JSON.parse(readFileSync(join(folder, 'model_weights.json'), 'utf8'))
  const { offset, size, dtype } = tensors[name]
  const bytes = dtype === 'F32' ? 4 : 2
  const at = offset + Math.floor(size / bytes / 2) * bytes + bytes - 2
  return change(join(folder, 'model_weights.bin'), content => content.writeUInt16LE(value, at))
}

/** One value of a part of the given experts of a layer, or of all. */
export async function poisonExperts(
  folder: string,
  layer: number,
  projection: 'gate' | 'up' | 'down',
  kind: 'scales' | 'biases',
  value: number,
  experts?: readonly number[],
): Promise<Antidote> {
  const packed = await openPacked(await openNodeFolder(folder, { links: 'any' }))
  const { config, experts: files } = packed
  await packed.close()
  const matrix = files.layout[projection]
  if (matrix.kind !== 'quantized') throw new Error('not quantized')
  const inner = matrix[kind].offset + Math.floor(matrix[kind].size / 4) * 2
  return change(files.files[layer].name, content => {
    for (const expert of experts ?? Array.from({ length: config.numExperts }, (_, i) => i)) {
      content.writeUInt16LE(value, expert * files.layout.expertSize + inner)
    }
  })
}

function change(path: string, edit: (content: Buffer) => void): Antidote {
  const sound = readFileSync(path)
  const content = Buffer.from(sound)
  edit(content)
  overwrite(path, content)
  return () => overwrite(path, sound)
}

/** The same file: who has it open sees the bytes. */
export function overwrite(path: string, content: Uint8Array): void {
  writeFileSync(path, content, { flag: 'r+' })
}
