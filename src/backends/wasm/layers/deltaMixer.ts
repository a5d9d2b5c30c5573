// The gated delta net of one layer over all rows of a step. A worker takes whole key heads with the value
// heads that use them: conv, norms, recurrence and gate of a head need nothing of other heads, so they run without a
// barrier in between, over all tokens of a run in one call each. Where that makes few pieces for many workers, and rows are few, it
// takes single value heads: whoever shares a key head makes queries and keys for itself, and writes the same bytes of its state.
import type { PlacedDelta, PlacedLayer } from '../memory/placedModel.js'
import { HOME, type Lane, type Need, needsOf } from './workerOps.js'

const PIECES_PER_WORKER = 4

export class LinearMixer {
  private readonly inputNeeds: readonly Need[]
  private readonly outNeeds: readonly Need[]

  constructor(
    private readonly lane: Lane,
    private readonly index: number,
    private readonly layer: PlacedLayer,
    private readonly mixer: PlacedDelta,
  ) {
    this.inputNeeds = needsOf(mixer.inProjQkv, mixer.inProjZ, mixer.inProjA, mixer.inProjB)
    this.outNeeds = needsOf(mixer.outProj)
  }

  run(): void {
    const { lane, layer, mixer } = this
    const { scratch, team } = lane
    lane.multiplyNormed(layer.inputNorm, this.inputNeeds, [
      [mixer.inProjQkv, scratch.qkv],
      [mixer.inProjZ, scratch.z],
      [mixer.inProjA, scratch.a],
      [mixer.inProjB, scratch.b],
    ])

    this.gates()
    const { linearKeyHeads, linearValueHeads } = lane.model.config
    const grain = Math.floor(linearKeyHeads / (team.size * PIECES_PER_WORKER))
    const least = lane.alone ? 1 : linearValueHeads / linearKeyHeads
    team.ranges(linearValueHeads, Math.max(least, (grain * linearValueHeads) / linearKeyHeads), (begin, end) => {
      for (let run = 0; run < lane.board.runs; run++) {
        const { rowStart, rows, guesses } = lane.board.run(run)
        // A state for each row where rows may turn out wrong.
        const stride = guesses ? 1 : rows
        for (let row = rowStart; row < rowStart + rows; row += stride) this.heads(row, stride, begin, end)
      }
    })
    team.barrier()

    lane.multiplyIntoHidden(lane.stage('linearOut'), this.outNeeds, mixer.outProj)
  }

  /** Every worker computes all heads' gates for itself: they are few. */
  private gates(): void {
    const { lane, layer, mixer } = this
    const { a, b } = lane.scratch
    const { beta, decay } = lane.own
    const { linearValueHeads: heads } = lane.model.config
    if (layer.stateBank !== HOME) {
      lane.copyColumns(HOME, layer.stateBank, a, 0, lane.rows, 0, heads)
      lane.copyColumns(HOME, layer.stateBank, b, 0, lane.rows, 0, heads)
    }
    const kernels = lane.kernels[layer.stateBank]
    kernels.deltaGates(
      beta.address,
      decay.address,
      b.address,
      a.address,
      beta.stride,
      mixer.aLog,
      mixer.dtBias,
      heads,
      lane.rows,
    )
  }

  /** Value heads [begin, end) and the key heads that they use, for rows that follow each other. */
  private heads(rowStart: number, rows: number, valueBegin: number, valueEnd: number): void {
    const { lane, layer, mixer } = this
    const { config, scratch } = lane.model
    const { linearKeyHeads, linearValueHeads, linearKeyDim, linearValueDim, linearConvDim, rmsNormEps } = config
    const bank = layer.stateBank
    const kernels = lane.kernels[bank]
    const perKey = linearValueHeads / linearKeyHeads
    const keyTotal = linearKeyHeads * linearKeyDim
    const begin = Math.floor(valueBegin / perKey)
    const end = Math.ceil(valueEnd / perKey)
    const valueColumns = [valueBegin * linearValueDim, valueEnd * linearValueDim] as const
    const channels = [
      [begin * linearKeyDim, end * linearKeyDim], // q
      [keyTotal + begin * linearKeyDim, keyTotal + end * linearKeyDim], // k
      [2 * keyTotal + valueColumns[0], 2 * keyTotal + valueColumns[1]], // v
    ]
    const { qkv, z } = scratch
    const conv = lane.alone ? lane.own.conv : scratch.conv
    const out = scratch.linearOut.x
    if (bank !== HOME) {
      for (const [from, to] of channels) lane.copyColumns(HOME, bank, qkv, rowStart, rowStart + rows, from, to)
      lane.copyColumns(HOME, bank, z, rowStart, rowStart + rows, ...valueColumns)
    }
    const convBytes = lane.convStateBytes
    const stateIn = lane.board.state(rowStart, this.index, 0)
    const stateOut = lane.board.state(rowStart, this.index, 1)
    const x = conv.address + rowStart * conv.stride
    const raw = qkv.address + rowStart * qkv.stride
    for (const [from, to] of channels) {
      kernels.conv1dSilu(x, conv.stride, raw, qkv.stride, stateIn, stateOut, mixer.taps, linearConvDim, rows, from, to)
    }
    const k = x + keyTotal * 4
    kernels.l2NormHeads(x, conv.stride, x, conv.stride, linearKeyDim, linearKeyDim ** -0.5, rows, begin, end)
    kernels.l2NormHeads(k, conv.stride, k, conv.stride, linearKeyDim, 1, rows, begin, end)
    const { beta, decay } = lane.own
    const target = out.address + rowStart * out.stride
    kernels.gatedDelta(
      target,
      out.stride,
      x,
      k,
      conv.stride,
      k + keyTotal * 4,
      conv.stride,
      beta.address + rowStart * beta.stride,
      decay.address + rowStart * decay.stride,
      beta.stride,
      stateIn + convBytes,
      stateOut + convBytes,
      linearKeyHeads,
      linearValueHeads,
      linearKeyDim,
      linearValueDim,
      rows,
      valueBegin,
      valueEnd,
    )
    kernels.rmsNormGated(
      target,
      out.stride,
      target,
      out.stride,
      z.address + rowStart * z.stride,
      z.stride,
      mixer.norm,
      linearValueDim,
      rmsNormEps,
      rows,
      valueBegin,
      valueEnd,
    )
    if (bank !== HOME) lane.copyColumns(bank, HOME, out, rowStart, rowStart + rows, ...valueColumns)
  }
}
