// After a step whose values were not finite: goes through the same tokens layer by layer and says where it began, and
// which expert it was where its weights tell. Costs about as much as the step did, on this path alone; each layer is a turn
// of its own, so that others are not kept waiting. Whoever asks for the context's tokens again gets the same answer.
import type { Backend, LayerProbe, ProbeRequest, ProbeResult, SequenceState } from '../backends/backend.js'
import type { NonFinitePlace } from '../base/errors.js'
import type { ExpertFiles } from '../files/packed/packedModel.js'
import { PROJECTIONS } from '../model/expertLayout.js'
import { areFinite, findNonFinite } from '../model/floats.js'
import { floatRanges } from '../model/tensorParts.js'
import type { Scheduler } from './scheduler.js'

export interface Locator {
  readonly backend: Backend
  readonly scheduler: Scheduler
  readonly experts: ExpertFiles
}

/** `tokens`: of the step that failed, which follow what the sequence holds. */
export async function locateNonFinite(
  { backend, scheduler, experts }: Locator,
  sequence: SequenceState,
  tokens: readonly number[],
  signal: AbortSignal,
): Promise<NonFinitePlace> {
  const { hiddenSize, numLayers } = backend.config
  const start = sequence.length
  const probe = (request: ProbeRequest): Promise<ProbeResult> => {
    signal.throwIfAborted()
    return scheduler.exclusive(() => backend.probe(sequence, request))
  }
  const { embed } = await probe({ tokens, layers: [], end: 0 })
  let hidden = embed as Float32Array
  let row = firstRow(hidden, hiddenSize)
  if (row >= 0) return { position: start + row, layer: null, experts: [], detail: 'the embedding' }
  for (let layer = 0; layer < numLayers; layer++) {
    const [result] = (await probe({ layer, hidden })).layers
    hidden = result.out
    row = firstRow(hidden, hiddenSize)
    if (row < 0) continue
    const position = start + row
    const stage = stageOf(result, row, tokens.length)
    if (stage !== null) return { position, layer, experts: [], detail: `layer ${layer}, ${stage}` }
    if (result.routerIndices.length === 0) {
      return { position, layer, experts: [], detail: `layer ${layer}, its feed-forward block` }
    }
    // What is in memory may be what the files held for a while: nothing of it is used again.
    await scheduler.exclusive(async () => backend.forgetExperts())
    const chosen = [...rowOf(result.routerIndices, row, tokens.length)].sort((a, b) => a - b)
    const broken = await brokenExperts(experts, backend.config.moeLayers.indexOf(layer), chosen)
    const found = broken.length > 0
    const which = found ? broken : chosen
    const names = `${which.length === 1 ? 'expert' : 'experts'} ${which.join(', ')}`
    const what = found ? 'whose weights on the disk are not finite' : 'whose weights on the disk are finite'
    return { position, layer, experts: which, detail: `layer ${layer}, ${names}, ${what}` }
  }
  return { position: start + tokens.length - 1, layer: null, experts: [], detail: 'the head, or the norm before it' }
}

/** What came before the experts and was not finite already; null where it was them. */
function stageOf(probe: LayerProbe, row: number, rows: number): string | null {
  const isBroken = (values: Float32Array) => !areFinite(rowOf(values, row, rows))
  if (isBroken(probe.mixerOut)) return 'its mixer'
  if (isBroken(probe.normed)) return 'the norm before its experts'
  if (isBroken(probe.routerLogits)) return 'its router'
  if (isBroken(probe.sharedOut) || isBroken(probe.sharedGate)) return 'its shared expert'
  return null
}

/** Of the given experts, those whose bytes on the disk hold what is not finite, or cannot be read. */
async function brokenExperts({ layouts, files }: ExpertFiles, place: number, experts: readonly number[]) {
  const layout = layouts[place]
  const broken: number[] = []
  const record = new Uint8Array(layout.expertSize)
  for (const expert of experts) {
    const isRead = await files[place].read(expert * layout.expertSize, record).then(
      () => true,
      () => false,
    )
    const ranges = PROJECTIONS.flatMap(projection => floatRanges(layout[projection]))
    const isSound = ranges.every(({ type, offset, size }) => {
      return findNonFinite(type, record.subarray(offset, offset + size)) < 0
    })
    if (!isRead || !isSound) broken.push(expert)
  }
  return broken
}

/** The first row of [rows, width] that is not finite, or -1. */
function firstRow(values: Float32Array, width: number): number {
  for (let row = 0; row * width < values.length; row++) {
    if (!areFinite(values.subarray(row * width, (row + 1) * width))) return row
  }
  return -1
}

function rowOf<T extends Float32Array | Int32Array>(values: T, row: number, rows: number): T {
  const width = values.length / rows
  return values.subarray(row * width, (row + 1) * width) as T
}
