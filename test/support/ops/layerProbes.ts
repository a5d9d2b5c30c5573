// What two backends tell of the same layer.
import type { LayerProbe } from '#moeflux/backends/backend.js'

/** Every array of a layer, by name. */
export function arraysOf(probe: LayerProbe): [string, Float32Array][] {
  return Object.entries(probe).filter(([, values]) => values instanceof Float32Array)
}

/** mlpOut of both, of the rows for which both have chosen the same experts: where a choice was on the edge, others answer. */
export function mlpOfSameChoices(
  a: LayerProbe,
  b: LayerProbe,
  hidden: number,
): { readonly a: Float32Array; readonly b: Float32Array } {
  const rows = a.mlpOut.length / hidden
  const k = b.routerIndices.length / rows
  const choice = ({ routerIndices }: LayerProbe, row: number) =>
    [...routerIndices.subarray(row * k, (row + 1) * k)].sort().join()
  const same = Array.from({ length: rows }, (_, row) => row).filter(row => choice(a, row) === choice(b, row))
  const rowsOf = ({ mlpOut }: LayerProbe) =>
    Float32Array.from(same.flatMap(row => [...mlpOut.subarray(row * hidden, (row + 1) * hidden)]))
  return { a: rowsOf(a), b: rowsOf(b) }
}
