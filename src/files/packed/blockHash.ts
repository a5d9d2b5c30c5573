// The checksum of a block, to find damage, not forgery. The code is a small WASM module that comes as text (see
// scripts/build.mjs), so that it is there at once in threads, workers and pages alike.
import type { WasmMemory } from '../../base/wasmTypes.js'
import { blockHashModules } from './blockHash.generated.js'

type Hash = (address: number, length: number) => bigint

const PAGE = 65536

/** The checksum of bytes where they lie in a shared memory, at any address. */
export function hashesOver(memory: WasmMemory): (address: number, length: number) => bigint {
  const hash = instantiate(blockHashModules.shared, memory as WebAssembly.Memory)
  return (address, length) => BigInt.asUintN(64, hash(address, length))
}

let window: { readonly memory: WebAssembly.Memory; readonly hash: Hash } | null = null

/** The checksum of any bytes; they are copied to where it is computed. */
export function blockHash(bytes: Uint8Array): bigint {
  if (window === null) {
    const memory = new WebAssembly.Memory({ initial: 1 })
    window = { memory, hash: instantiate(blockHashModules.plain, memory) }
  }
  const { memory, hash } = window
  const missing = bytes.length - memory.buffer.byteLength
  if (missing > 0) memory.grow(Math.ceil(missing / PAGE))
  new Uint8Array(memory.buffer).set(bytes)
  return BigInt.asUintN(64, hash(0, bytes.length))
}

function instantiate(module: string, memory: WebAssembly.Memory): Hash {
  const bytes = Uint8Array.from(atob(module), char => char.charCodeAt(0))
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes), { env: { memory } })
  return exports.blockHash as Hash
}
