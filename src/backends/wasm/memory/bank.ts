// A bank is one WebAssembly.Memory (at most 4 GiB) with an arena over the part of it that comes and goes: K/V pages and
// recurrent state. What is fixed at open (scratch, weights, expert slots) lies below `floor` and never moves. Freed
// blocks go to a list by size and are handed out again first, so memory grows with the most that was ever in use.
// Only the main thread allocates; workers see addresses. Where nothing is shared, growing moves the memory to another
// buffer, so views are made when they are used.
import { OutOfMemoryError } from '../../../base/errors.js'

const WASM_PAGE = 65536
const BLOCK_ALIGN = 64
const GROW_BYTES = 4 * 2 ** 20

export const MAX_BANK_BYTES = 65536 * WASM_PAGE

export function alignUp(bytes: number, align: number): number {
  return Math.ceil(bytes / align) * align
}

export class Bank {
  readonly memory: WebAssembly.Memory
  private readonly limit: number
  private top: number // first byte never handed out
  private readonly free = new Map<number, number[]>() // block size -> addresses
  private used = 0

  constructor(
    readonly index: number,
    floor: number,
    limit: number,
    shared = true,
    private readonly mayGrow: (bytes: number) => string | null = () => null, // why not
  ) {
    const initial = Math.ceil(floor / WASM_PAGE)
    const maximum = Math.min(65536, Math.max(initial, Math.ceil(limit / WASM_PAGE)))
    this.top = floor
    const { memory, pages } = reserve(index, initial, maximum, shared)
    this.memory = memory
    this.limit = pages * WASM_PAGE
  }

  allocate(bytes: number): number {
    const size = alignUp(bytes, BLOCK_ALIGN)
    const reused = this.free.get(size)?.pop()
    if (reused !== undefined) {
      this.used += size
      return reused
    }
    const end = this.top + size
    if (end > this.limit) {
      throw new OutOfMemoryError(
        `wasm bank ${this.index}`,
        bytes,
        `${this.limit - this.top} of ${this.limit} bytes left`,
      )
    }
    const have = this.memory.buffer.byteLength
    if (end > have) this.grow(end - have, bytes)
    const address = this.top
    this.top = end
    this.used += size
    return address
  }

  release(address: number, bytes: number): void {
    const size = alignUp(bytes, BLOCK_ALIGN)
    const list = this.free.get(size)
    if (list) list.push(address)
    else this.free.set(size, [address])
    this.used -= size
  }

  private grow(missing: number, wanted: number): void {
    const refused = this.mayGrow(missing)
    if (refused !== null) throw new OutOfMemoryError(`wasm bank ${this.index}`, wanted, refused)
    // In larger pieces, for whoever has to be asked; pages that nobody touches take no memory.
    const have = this.memory.buffer.byteLength
    const pages = Math.ceil(Math.min(Math.max(missing, GROW_BYTES), this.limit - have) / WASM_PAGE)
    try {
      this.memory.grow(pages)
    } catch (error) {
      throw new OutOfMemoryError(`wasm bank ${this.index}`, wanted, 'the system refused to grow the memory', {
        cause: error,
      })
    }
  }

  bytes(address: number, length: number): Uint8Array {
    return new Uint8Array(this.memory.buffer, address, length)
  }

  floats(address: number, length: number): Float32Array {
    return new Float32Array(this.memory.buffer, address, length)
  }

  words(address: number, length: number): Uint32Array {
    return new Uint32Array(this.memory.buffer, address, length)
  }
}

/** A memory that may grow to `maximum` pages, or to fewer where there is no address space for that many (phones). */
function reserve(index: number, initial: number, maximum: number, shared: boolean) {
  for (let pages = maximum; ; pages = Math.max(initial, pages >> 1)) {
    try {
      return { memory: new WebAssembly.Memory({ initial, maximum: pages, shared }), pages }
    } catch (cause) {
      if (pages > initial) continue
      throw new OutOfMemoryError(`wasm bank ${index}`, initial * WASM_PAGE, 'the system refused the memory', { cause })
    }
  }
}
