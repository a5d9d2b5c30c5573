// Fills the banks with the resident part of a model: matrices as they are in the file, straight into shared memory, and
// small vectors widened to float32.
import type { ByteSource } from '../../../files/source.js'
import { widenFloats } from '../../../model/floats.js'
import type { ModelTensors, Vector } from '../../../model/tensors.js'
import type { Progress } from '../../backend.js'
import type { Bank } from './bank.js'
import type { LoadRange, MemoryPlan } from './bankLayout.js'

const PIECE = 16 * 2 ** 20
const READS_AT_ONCE = 4

export interface LoadOptions {
  readonly onProgress?: (progress: Progress) => void
  readonly signal?: AbortSignal
}

export async function loadWeights(
  source: ByteSource,
  tensors: ModelTensors,
  plan: MemoryPlan,
  banks: readonly Bank[],
  options: LoadOptions,
): Promise<void> {
  const pieces = plan.loads.flatMap(cut)
  const total = pieces.reduce((sum, piece) => sum + piece.size, 0)
  const report = (loaded: number) => options.onProgress?.({ phase: 'load weights', loaded, total })
  report(0)
  let loaded = 0
  let next = 0
  let failed = false
  const reader = async () => {
    while (next < pieces.length && !failed) {
      const { offset, size, bank, address } = pieces[next++]
      try {
        await source.read(offset, banks[bank].bytes(address, size), options.signal)
      } catch (error) {
        failed = true
        throw error
      }
      loaded += size
      report(loaded)
    }
  }
  const readers = await Promise.allSettled(Array.from({ length: READS_AT_ONCE }, reader))
  for (const result of readers) if (result.status === 'rejected') throw result.reason

  const taps = new Set<Vector>(
    tensors.layers.flatMap(({ mixer }) => (mixer.kind === 'linear_attention' ? [mixer.conv] : [])),
  )
  for (const [vector, { bank, address }] of plan.vectors) {
    const bytes = new Uint8Array(vector.data.size)
    await source.read(vector.data.offset, bytes, options.signal)
    const floats = new Float32Array(vector.length)
    widenFloats(vector.type, bytes, floats)
    banks[bank].floats(address, vector.length).set(taps.has(vector) ? transposeTaps(floats) : floats)
  }
}

function cut(range: LoadRange): LoadRange[] {
  const pieces: LoadRange[] = []
  for (let at = 0; at < range.size; at += PIECE) {
    const size = Math.min(PIECE, range.size - at)
    pieces.push({ bank: range.bank, offset: range.offset + at, address: range.address + at, size })
  }
  return pieces
}

/** [channels, 4] of the file to [4, channels] of the kernel. */
function transposeTaps(taps: Float32Array): Float32Array {
  const channels = taps.length / 4
  const out = new Float32Array(taps.length)
  for (let channel = 0; channel < channels; channel++) {
    for (let tap = 0; tap < 4; tap++) out[tap * channels + channel] = taps[channel * 4 + tap]
  }
  return out
}
