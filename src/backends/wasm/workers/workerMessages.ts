// What every compute worker is given, and what it tells the main thread.
import type { WasmMemory } from '../../../base/wasmTypes.js'
import type { KernelModule } from '../kernels.js'
import type { BoardShape } from './jobLayout.js'

/** What every compute worker gets. Can be posted. */
export interface WorkerSetup {
  readonly index: number // 0 leads
  readonly kernels: KernelModule
  readonly memories: readonly WasmMemory[] // per bank
  readonly board: ArrayBufferLike
  readonly boardShape: BoardShape
}

/** An error that survives being posted. */
export interface PostedFailure {
  readonly message: string
  readonly read?: { layer: number; expert: number; file: string; offset: number; detail: string }
}

/** What workers tell the main thread. Only the leader reports jobs. */
export type WorkerReport =
  | { readonly kind: 'ready' }
  | { readonly kind: 'done'; readonly job?: number } // for a pool that may have seen that already
  | { readonly kind: 'aborted' }
  | { readonly kind: 'failed'; readonly failure: PostedFailure }
