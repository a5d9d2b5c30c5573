// Which tensors of a GGUF file are which of the packed folder, and what the usual converter did to them: value heads in
// another order, A_log as -exp(A_log), gates without their one row. Names and shapes; the bytes are read elsewhere.
import { TensorError } from '../../base/errors.js'
import type { ModelConfig } from '../../model/config.js'
import { hasExpertBiases, PROJECTIONS, type Projection, projectionShape } from '../../model/expertLayout.js'
import { familyNamed } from '../../model/families/families.js'
import type { Family, SourceRows } from '../../model/families/family.js'
import type { GgufSource } from '../../model/families/ggufSource.js'
import type { FloatType } from '../../model/floats.js'
import { widenFloats } from '../../model/floats.js'
import { layerPath, listSpecs, type MatrixSpec, planTensors, type VectorSpec } from '../../model/tensorPlan.js'
import type { GgufFile, PlacedTensor } from './ggufFile.js'
import { type MatrixOrder, RelaidMatrix, targetOf } from './repackedMatrix.js'

/** A matrix under its name in the packed folder; `stack` experts below each other, or none. */
export interface NamedMatrix {
  readonly name: string
  readonly matrix: RelaidMatrix
  readonly stack: number | null
}

export interface NamedVector {
  readonly name: string
  readonly shape: readonly number[]
  read(): Promise<Float32Array>
}

export interface NamedTensors {
  readonly matrices: readonly NamedMatrix[]
  readonly vectors: readonly NamedVector[]
}

const TOP_NAMES: ReadonlyMap<string, string> = new Map([
  ['model.embed_tokens', 'token_embd.weight'],
  ['lm_head', 'output.weight'],
  ['model.norm.weight', 'output_norm.weight'],
])

const HEAD_NAMES: ReadonlyMap<string, string> = new Map([
  ['mtp.fc', 'nextn.eh_proj.weight'],
  ['mtp.pre_fc_norm_embedding.weight', 'nextn.enorm.weight'],
  ['mtp.pre_fc_norm_hidden.weight', 'nextn.hnorm.weight'],
  ['mtp.norm.weight', 'nextn.shared_head_norm.weight'],
])

const LAYER_NAMES: ReadonlyMap<string, string> = new Map([
  ['input_layernorm.weight', 'attn_norm.weight'],
  ['post_attention_layernorm.weight', 'post_attention_norm.weight'],
  ['self_attn.q_proj', 'attn_q.weight'],
  ['self_attn.k_proj', 'attn_k.weight'],
  ['self_attn.v_proj', 'attn_v.weight'],
  ['self_attn.o_proj', 'attn_output.weight'],
  ['self_attn.q_norm.weight', 'attn_q_norm.weight'],
  ['self_attn.k_norm.weight', 'attn_k_norm.weight'],
  ['linear_attn.in_proj_qkv', 'attn_qkv.weight'],
  ['linear_attn.in_proj_z', 'attn_gate.weight'],
  ['linear_attn.in_proj_a', 'ssm_alpha.weight'],
  ['linear_attn.in_proj_b', 'ssm_beta.weight'],
  ['linear_attn.out_proj', 'ssm_out.weight'],
  ['linear_attn.conv1d.weight', 'ssm_conv1d.weight'],
  ['linear_attn.A_log', 'ssm_a'],
  ['linear_attn.dt_bias', 'ssm_dt.bias'],
  ['linear_attn.norm.weight', 'ssm_norm.weight'],
  ['mlp.gate', 'ffn_gate_inp.weight'],
  ['mlp.shared_expert_gate', 'ffn_gate_inp_shexp.weight'],
  ['mlp.shared_expert.gate_proj', 'ffn_gate_shexp.weight'],
  ['mlp.shared_expert.up_proj', 'ffn_up_shexp.weight'],
  ['mlp.shared_expert.down_proj', 'ffn_down_shexp.weight'],
  ['mlp.gate_proj', 'ffn_gate.weight'],
  ['mlp.up_proj', 'ffn_up.weight'],
  ['mlp.down_proj', 'ffn_down.weight'],
  ['self_attn.q_proj.bias', 'attn_q.bias'],
  ['self_attn.k_proj.bias', 'attn_k.bias'],
  ['self_attn.v_proj.bias', 'attn_v.bias'],
  ['self_attn.o_proj.bias', 'attn_output.bias'],
  ['self_attn.sinks', 'attn_sinks.weight'],
  ['mlp.gate.bias', 'ffn_gate_inp.bias'],
  ['mlp.gate.e_score_correction_bias', 'exp_probs_b.bias'],
])

/** `own`: of the family, before the usual ones. `layers`: how many there are; the head for drafts is the one after them. */
export function ggufNameOf(packedName: string, layers: number, own: GgufSource['names'] = {}): string {
  const [, layer, name] = /^(?:model\.layers\.(\d+)|mtp\.layers\.0)\.(.*)$/.exec(packedName) ?? []
  if (name !== undefined) return `blk.${layer ?? layers}.${own[name] ?? LAYER_NAMES.get(name)!}`
  const ofHead = HEAD_NAMES.get(packedName)
  return ofHead === undefined ? TOP_NAMES.get(packedName)! : `blk.${layers}.${ofHead}`
}

/** Whether the file carries a head for drafts. */
export function hasGgufHead(file: GgufFile, { numLayers }: ModelConfig): boolean {
  return file.tensors.has(ggufNameOf('mtp.fc', numLayers))
}

export function nameTensors(file: GgufFile, config: ModelConfig): NamedTensors {
  const names = new TensorNames(file, config)
  const specs = listSpecs(planTensors(config))
  return {
    matrices: [
      ...specs.flatMap(spec => (spec.kind === 'matrix' ? names.matrix(spec) : [])),
      ...PROJECTIONS.flatMap(projection => names.experts(projection)),
    ],
    vectors: [
      ...specs.flatMap(spec => (spec.kind === 'vector' ? names.vector(spec) : [])),
      ...(hasExpertBiases(config) ? PROJECTIONS.flatMap(projection => names.expertBiases(projection)) : []),
    ],
  }
}

class TensorNames {
  private readonly family: Family

  constructor(
    private readonly file: GgufFile,
    private readonly config: ModelConfig,
  ) {
    this.family = familyNamed(config.family)
  }

  matrix(spec: MatrixSpec): NamedMatrix {
    const { name, rows, cols } = spec
    const part = this.file.tensors.has(this.nameOf(name)) ? null : this.family.source.rowsOf?.(name, this.config)
    if (part) return this.partOf(spec, part)
    const tensor = this.find(this.nameOf(name))
    // The quantizer leaves the one row of a gate out.
    const isRow = rows === 1 && tensor.shape.length === 1
    checkShape(tensor, isRow ? [cols] : [rows, cols])
    const order = this.orderOf(name)
    return { name, stack: null, matrix: new RelaidMatrix(tensor, rows, cols, targetOf(tensor, cols, order), order) }
  }

  /** Rows of a matrix that holds others as well. */
  private partOf({ name, rows, cols }: MatrixSpec, part: SourceRows): NamedMatrix {
    const tensor = this.find(this.nameOf(part.name))
    checkShape(tensor, [part.rows, cols])
    const order = { rowOf: part.rowOf }
    return { name, stack: null, matrix: new RelaidMatrix(tensor, rows, cols, targetOf(tensor, cols, order), order) }
  }

  private nameOf(packedName: string): string {
    return ggufNameOf(packedName, this.config.numLayers, this.family.gguf.names)
  }

  vector({ name, length }: VectorSpec): NamedVector {
    const tensor = this.find(this.nameOf(name))
    const { linearConvDim, linearConvKernel } = this.config
    const isConv = name.endsWith('conv1d.weight')
    checkShape(tensor, isConv ? [linearConvDim, linearConvKernel] : [length])
    // The order of the convolution's axes tells that norms have their 1 already, as in MLX folders.
    const shape = isConv ? [linearConvDim, linearConvKernel, 1] : [length]
    const isDecay = name.endsWith('A_log')
    const width = isConv ? linearConvKernel : 1
    const { rowOf } = this.orderOf(name)
    return {
      name,
      shape,
      async read() {
        const values = reorderRows(await readFloats(tensor), width, rowOf)
        return isDecay ? values.map(value => decayLog(tensor, value)) : values
      },
    }
  }

  /** A projection of all experts, in each layer. */
  experts(projection: Projection): NamedMatrix[] {
    const { expertLayers, numExperts } = this.config
    const [rows, cols] = projectionShape(this.config, projection)
    return expertLayers.map(layer => {
      const { tensor, order } = this.expertTensor(layer, projection, rows, cols)
      return {
        name: `${layerPath(this.config, layer)}mlp.switch_mlp.${projection}_proj`,
        stack: numExperts,
        matrix: new RelaidMatrix(tensor, numExperts * rows, cols, targetOf(tensor, cols), order),
      }
    })
  }

  expertBiases(projection: Projection): NamedVector[] {
    const { expertLayers, numExperts } = this.config
    const shape = [numExperts, projectionShape(this.config, projection)[0]]
    return expertLayers.map(layer => {
      const tensor = this.find(`blk.${layer}.ffn_${projection}_exps.bias`)
      checkShape(tensor, shape)
      return {
        name: `${layerPath(this.config, layer)}mlp.switch_mlp.${projection}_proj.bias`,
        shape,
        read: () => readFloats(tensor),
      }
    })
  }

  private expertTensor(layer: number, projection: Projection, rows: number, cols: number) {
    const { numExperts } = this.config
    const fused = this.file.tensors.get(`blk.${layer}.ffn_gate_up_exps.weight`)
    if (fused === undefined || projection === 'down') {
      const tensor = this.find(`blk.${layer}.ffn_${projection}_exps.weight`)
      checkShape(tensor, [numExperts, rows, cols])
      return { tensor, order: {} }
    }
    checkShape(fused, [numExperts, 2 * rows, cols])
    const first = projection === 'gate' ? 0 : rows // gate rows first, then up rows
    const rowOf = (row: number) => Math.floor(row / rows) * 2 * rows + first + (row % rows)
    return { tensor: fused, order: { rowOf } }
  }

  /** How value heads lie in the file: where they outnumber key heads, those of all key heads take turns. */
  private orderOf(name: string): MatrixOrder {
    const { linearKeyHeads, linearValueHeads, linearKeyDim, linearValueDim } = this.config
    const perKey = linearValueHeads / linearKeyHeads
    const isTiled = this.family.gguf.hasTiledHeads === true && perKey > 1
    if (!isTiled || !name.includes('.linear_attn.')) return {}
    const headOf = (head: number) => (head % perKey) * linearKeyHeads + Math.floor(head / perKey)
    const byHead = (size: number, first: number) => (row: number) => {
      if (row < first) return row
      const head = Math.floor((row - first) / size)
      return first + headOf(head) * size + ((row - first) % size)
    }
    if (/in_proj_qkv|conv1d/.test(name)) return { rowOf: byHead(linearValueDim, 2 * linearKeyHeads * linearKeyDim) }
    if (name.endsWith('in_proj_z')) return { rowOf: byHead(linearValueDim, 0) }
    if (/in_proj_a|in_proj_b|A_log|dt_bias/.test(name)) return { rowOf: byHead(1, 0) }
    if (name.endsWith('out_proj'))
      return { columnBlocks: Array.from({ length: linearValueHeads }, (_, h) => headOf(h)) }
    return {}
  }

  private find(name: string): PlacedTensor {
    const tensor = this.file.tensors.get(name)
    if (tensor === undefined) throw new TensorError(name, 'is missing', this.file.name)
    return tensor
  }
}

async function readFloats(tensor: PlacedTensor): Promise<Float32Array> {
  const { source, type } = tensor
  if (type.name !== 'F32' && type.name !== 'F16' && type.name !== 'BF16') {
    throw new TensorError(tensor.name, `has the type ${type.name}, want F32, F16 or BF16`, source.name)
  }
  const bytes = new Uint8Array(tensor.size)
  await source.read(tensor.offset, bytes)
  const values = new Float32Array(tensor.size / type.blockBytes)
  widenFloats(type.name satisfies FloatType, bytes, values)
  return values
}

function reorderRows(values: Float32Array, width: number, rowOf?: (row: number) => number): Float32Array {
  if (rowOf === undefined) return values
  return values.map((_, i) => values[rowOf(Math.floor(i / width)) * width + (i % width)])
}

function decayLog(tensor: PlacedTensor, value: number): number {
  if (value < 0 && Number.isFinite(value)) return Math.log(-value)
  throw new TensorError(tensor.name, `holds ${value}, want numbers below 0`, tensor.source.name)
}

function checkShape(tensor: PlacedTensor, want: readonly number[]): void {
  const { shape } = tensor
  if (shape.length === want.length && shape.every((size, i) => size === want[i])) return
  throw new TensorError(tensor.name, `the shape is [${shape}], want [${want}]`, tensor.source.name)
}
