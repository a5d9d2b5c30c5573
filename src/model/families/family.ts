// What a family of models is: one descriptor, one file beside this one. It says how a config.json is read into the shapes of
// layers, how tensors are called, and which dialect the models speak. All else follows from the shapes.
import type { ConfigFields } from '../configFields.js'
import type { LayerShape, RopeShape } from '../layers.js'
import type { GgufSource } from './ggufSource.js'

export type DialectName = 'qwen3_5' | 'qwen3_coder' | 'hermes' | 'glm4' | 'harmony'

export interface Family {
  readonly name: string
  /** `model_type` of its checkpoints, at the root and under `text_config`. */
  readonly modelTypes: readonly string[]
  /** How its models write thoughts and tool calls, where their chat template does not show it: src/text/dialects. */
  readonly dialect: DialectName
  /** RMS norms are stored without their 1 in Hugging Face layouts (but for the delta net's own). */
  readonly zeroCentredNorms: boolean
  readShapes(fields: ConfigFields, base: BaseShapes): FamilyShapes
  readonly source: SourceNames
  readonly gguf: GgufSource
}

/** How checkpoints differ from the packed folder, whose names are those of `tensorPlan.ts`. */
export interface SourceNames {
  /** Applied in turn to each name, after the prefixes of multimodal checkpoints are gone. */
  readonly renames: readonly (readonly [pattern: RegExp, replacement: string])[]
  /** Where the rows of a matrix are that has no tensor of its own; null: there is one. */
  rowsOf?(name: string, shapes: DeltaSizes): SourceRows | null
  /**
   * `experts.gate_up_proj`: 'stacked' rows of gate, then those of up; or 'alternating', where floats lie input first
   * ([in, out], `down_proj` too).
   */
  readonly fusedExperts: 'stacked' | 'alternating'
}

/** Some rows of a matrix that holds others as well. */
export interface SourceRows {
  readonly name: string
  readonly rows: number // of the whole
  rowOf(row: number): number
}

/** What every config says, read before its family is asked. */
export interface BaseShapes {
  readonly numLayers: number
  readonly headDim: number
}

/** Sizes are 0 where a model has nothing of the kind. */
export interface FamilyShapes extends ExpertSizes, DeltaSizes {
  readonly layers: readonly LayerShape[]
  readonly rope: RopeShape // that of all layers with full attention: one table of angles serves them
  readonly fullAttentionInterval: number
  /** The layer of a head for drafts, should a checkpoint of this family carry one; null: it has none, or another kind. */
  readonly headShape: LayerShape | null
}

export interface ExpertSizes {
  readonly numExperts: number
  readonly expertsPerToken: number // the model's own K
  readonly moeIntermediateSize: number
  readonly sharedExpertIntermediateSize: number
}

export interface DeltaSizes {
  readonly linearKeyHeads: number
  readonly linearValueHeads: number
  readonly linearKeyDim: number // per head
  readonly linearValueDim: number // per head
}

export const NO_EXPERTS: ExpertSizes = {
  numExperts: 0,
  expertsPerToken: 0,
  moeIntermediateSize: 0,
  sharedExpertIntermediateSize: 0,
}

export const NO_DELTA: DeltaSizes = { linearKeyHeads: 0, linearValueHeads: 0, linearKeyDim: 0, linearValueDim: 0 }
