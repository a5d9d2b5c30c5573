// WebAssembly's objects as declarations name them: the types of `WebAssembly` are among those of pages, which a program for Node
// need not have.

export interface WasmMemory {
  readonly buffer: ArrayBuffer
}

/** A `WebAssembly.Module`, which shows nothing of itself. */
export type WasmModule = object
