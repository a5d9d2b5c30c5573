// A shared memory with kernels of one build over it, and an allocator for tests: every allocation begins as NaN (floats)
// or 0xff bytes and lies between fences, so that what a kernel leaves unwritten or writes outside is seen.
import { expect } from 'vitest'
import { instantiateKernels, type Kernels, type SimdLevel } from '#moeflux/backends/wasm/kernels.js'
import { loadKernels } from '#moeflux/backends/wasm/nodePlatform.js'

const FENCE = 64
const FENCE_BYTE = 0xe7

export class WasmArena {
  private used = FENCE
  private readonly blocks: { address: number; size: number }[] = []

  private constructor(
    readonly kernels: Kernels,
    readonly memory: WebAssembly.Memory,
  ) {}

  static async create(simd: SimdLevel, megabytes = 16): Promise<WasmArena> {
    const pages = megabytes * 16
    const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })
    return new WasmArena(await instantiateKernels(await loadKernels(simd), memory), memory)
  }

  /** Forgets all allocations, after checking that nothing was written between them. */
  reset(): void {
    const bytes = new Uint8Array(this.memory.buffer)
    for (const { address, size } of this.blocks) {
      for (let i = 0; i < FENCE; i++) {
        if (bytes[address - 1 - i] !== FENCE_BYTE) expect.fail(`byte ${-1 - i} before a block of ${size} was written`)
        if (bytes[address + size + i] !== FENCE_BYTE) expect.fail(`byte ${i} after a block of ${size} was written`)
      }
    }
    this.blocks.length = 0
    this.used = FENCE
  }

  allocate(size: number): number {
    const address = this.used + FENCE
    this.used = address + Math.ceil(size / 16) * 16 + FENCE
    const bytes = new Uint8Array(this.memory.buffer)
    bytes.fill(FENCE_BYTE, address - FENCE, address + size + FENCE)
    bytes.fill(0xff, address, address + size)
    this.blocks.push({ address, size })
    return address
  }

  floats(length: number): number {
    return this.allocate(length * 4)
  }

  put(data: ArrayBufferView, skew = 0): number {
    const address = this.allocate(data.byteLength + skew) + skew
    new Uint8Array(this.memory.buffer).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), address)
    return address
  }

  /** Rows of `width` floats at `stride` bytes; what lies between rows is NaN. */
  putRows(data: Float32Array, width: number, stride: number): number {
    const rows = data.length / width
    const address = this.allocate(rows * stride)
    for (let row = 0; row < rows; row++) {
      new Float32Array(this.memory.buffer, address + row * stride, width).set(
        data.subarray(row * width, (row + 1) * width),
      )
    }
    return address
  }

  read(address: number, length: number): Float32Array {
    return new Float32Array(this.memory.buffer, address, length).slice()
  }

  readRows(address: number, rows: number, width: number, stride: number): Float32Array {
    const out = new Float32Array(rows * width)
    for (let row = 0; row < rows; row++) out.set(this.read(address + row * stride, width), row * width)
    return out
  }

  readInts(address: number, length: number): Uint32Array {
    return new Uint32Array(this.memory.buffer, address, length).slice()
  }
}

/** Bytes of a row of `width` floats, with room to a multiple of 16 and 16 more. */
export function rowStride(width: number): number {
  return Math.ceil(width / 4) * 16 + 16
}
