// Files that exist in memory only: safetensors built byte by byte, and folders whose files a test makes up.
import { ModelNotFoundError, ReadError } from '#moeflux/base/errors.js'
import type { ByteSource, Folder } from '#moeflux/files/source.js'

export function memorySource(bytes: Uint8Array, name = 'test.safetensors'): ByteSource {
  return {
    name,
    size: bytes.byteLength,
    async read(offset, target) {
      if (offset < 0 || offset + target.byteLength > bytes.byteLength) {
        throw new ReadError(name, offset, target.byteLength, 'past the end')
      }
      target.set(bytes.subarray(offset, offset + target.byteLength))
    },
    async close() {},
  }
}

export function memoryFolder(files: ReadonlyMap<string, Uint8Array | string>): Folder {
  const find = (name: string) => files.get(name)
  return {
    location: '/memory',
    async readText(name) {
      const file = find(name)
      if (file === undefined) return null
      return typeof file === 'string' ? file : new TextDecoder().decode(file)
    },
    async open(name) {
      const file = find(name)
      if (file === undefined) throw new ModelNotFoundError(name, 'no such file')
      return memorySource(typeof file === 'string' ? new TextEncoder().encode(file) : file, name)
    },
  }
}

/** A safetensors file with this header, as text or bytes, and so many bytes of data. */
export function safetensorsFile(header: string | Uint8Array, data: Uint8Array | number = 0): Uint8Array {
  const json = typeof header === 'string' ? new TextEncoder().encode(header) : header
  const body = typeof data === 'number' ? new Uint8Array(data) : data
  const file = new Uint8Array(8 + json.byteLength + body.byteLength)
  new DataView(file.buffer).setBigUint64(0, BigInt(json.byteLength), true)
  file.set(json, 8)
  file.set(body, 8 + json.byteLength)
  return file
}

export interface TestTensor {
  readonly dtype: string
  readonly shape: readonly number[]
  readonly data: Uint8Array
}

/** A well-formed safetensors file of these tensors. */
export function buildSafetensors(
  tensors: ReadonlyMap<string, TestTensor>,
  metadata?: Readonly<Record<string, string>>,
): Uint8Array {
  const parts: string[] = metadata === undefined ? [] : [`"__metadata__":${JSON.stringify(metadata)}`]
  const chunks: Uint8Array[] = []
  let end = 0
  for (const [name, { dtype, shape, data }] of tensors) {
    const offsets = [end, (end += data.byteLength)]
    parts.push(`${JSON.stringify(name)}:${JSON.stringify({ dtype, shape, data_offsets: offsets })}`)
    chunks.push(data)
  }
  const body = new Uint8Array(end)
  let at = 0
  for (const chunk of chunks) {
    body.set(chunk, at)
    at += chunk.byteLength
  }
  return safetensorsFile(`{${parts.join(',')}}`, body)
}
