// The routers of all layers with experts, each with its shared expert's gate where there is one, in one buffer where they have
// one format: a dispatch can then compute a layer's router and, on the same hidden state, those of the next layers, as a guess
// of what they will want. Layers are counted among those with experts, that of a head for drafts last.
import { MAX_SEGMENTS, type MatrixAt, type MatrixPart } from '../../../gpu/memory/matrixWeights.js'
import type { ModelConfig } from '../../../model/config.js'
import { allLayers } from '../../../model/tensorParts.js'
import type { ModelTensors } from '../../../model/tensors.js'

/** A router, its gate and this many more routers make one dispatch. */
export const MOST_AHEAD = MAX_SEGMENTS - 2

export class RouterWeights {
  private readonly parts: readonly MatrixPart[]
  private readonly experts: number

  /** `parts`: loaded from the places that `place` gave. */
  constructor(parts: readonly MatrixPart[], config: ModelConfig) {
    this.parts = parts
    this.experts = config.numExperts
  }

  static place(tensors: ModelTensors, { expertLayers, numExperts }: ModelConfig): MatrixAt[] {
    const layers = allLayers(tensors)
    return expertLayers.flatMap((layer, index) => {
      const { feedForward } = layers[layer]
      if (feedForward.kind !== 'moe') return []
      const out = index * (numExperts + 1)
      const gate = feedForward.shared?.gate ?? null
      return [{ matrix: feedForward.router, out }, ...(gate === null ? [] : [{ matrix: gate, out: out + numExperts }])]
    })
  }

  /** A layer's router rows, then the shared expert's gate. */
  of(layer: number): MatrixPart[] {
    const width = this.experts + 1
    return this.parts.flatMap(part => {
      const own = part.segments.filter(({ out }) => Math.floor(out / width) === layer)
      const segments = own.map(segment => ({ ...segment, out: segment.out - layer * width }))
      return segments.length > 0 ? [{ ...part, segments }] : []
    })
  }

  /** The same, then the routers of `ahead` layers more; null where no single dispatch can compute them. */
  withNext(layer: number, ahead: number): MatrixPart | null {
    const [own, ...others] = this.of(layer)
    if (others.length > 0) return null
    const segments = [...own.segments]
    for (let i = 1; i <= ahead; i++) {
      const next = this.of(layer + i).find(({ buffer }) => buffer === own.buffer)
      const router = next?.segments.filter(({ out }) => out < this.experts)
      if (router?.length !== 1) return null
      segments.push({ ...router[0], out: this.experts + 1 + (i - 1) * this.experts, norm: i })
    }
    return segments.length <= MAX_SEGMENTS ? { ...own, segments } : null
  }
}
