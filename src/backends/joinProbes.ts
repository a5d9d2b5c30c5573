// One probe out of those of the chunks that its tokens were cut into.
import { joinFloats } from '../model/floats.js'
import type { LayerProbe, ProbeResult } from './backend.js'

export function joinProbes(parts: readonly ProbeResult[]): ProbeResult {
  if (parts.length === 1) return parts[0]
  const floats = (of: (part: ProbeResult) => Float32Array | null) => {
    const all = parts.map(of)
    return all.some(part => part === null) ? null : joinFloats(all as Float32Array[])
  }
  const layers = (parts[0]?.layers ?? []).map(({ layer }, i): LayerProbe => {
    const field = (name: Exclude<keyof LayerProbe, 'layer' | 'routerIndices'>) =>
      joinFloats(parts.map(part => part.layers[i][name]))
    return {
      layer,
      mixerOut: field('mixerOut'),
      normed: field('normed'),
      routerLogits: field('routerLogits'),
      routerIndices: Int32Array.from(parts.flatMap(part => [...part.layers[i].routerIndices])),
      routerWeights: field('routerWeights'),
      sharedOut: field('sharedOut'),
      sharedGate: field('sharedGate'),
      mlpOut: field('mlpOut'),
      out: field('out'),
    }
  })
  return { embed: floats(p => p.embed), layers, finalNorm: floats(p => p.finalNorm), logits: floats(p => p.logits) }
}
