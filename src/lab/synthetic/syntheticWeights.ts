// The numbers of a synthetic model. Quantized weights are random bits; what is drawn with care are scales and biases.
// A bias belongs to a group of 64 columns, so a direction of the hidden state that is constant within each group can be
// written into biases alone. Three things use such directions:
//
//   embedding of token i   =  common + topic[i mod topics] + random
//   router row of expert e =  popularity[e] * common + random direction (its liking for each topic) + random
//   output row of token i  =  topic[i mod topics] + random
//
// So some experts are wanted more than others, tokens of one topic want alike experts, and a model that writes its own
// text stays on a topic for a while. Outputs of all blocks are small beside the embedding: nothing grows with depth, and a
// layer's router sees nearly what the next one will see, as in trained models. Without skew there is only the random part.
import { float32ToBfloat16 } from '../../model/floats.js'
import { quantizedSizes } from '../../model/quantize.js'
import type { MatrixSpec, VectorSpec } from '../../model/tensorPlan.js'
import type { QuantBits } from '../../model/tensors.js'
import type { SyntheticSpec } from './syntheticSpec.js'

export const TOPICS = 64
const GROUP = 64
const EMBEDDING_RMS = 2
const BIAS_RANGE = 0.1
const BLOCK_GAIN = 0.5 // of what a block adds to the residual stream
const COMMON_SHARE = 0.2 // of the embedding's energy, at full skew
const TOPIC_SHARE = 0.2
const POPULARITY_STD = 0.3 // router logits; the random part has about 1
const LIKING_STD = 0.3
const STAY_BOOST = 2 // logits of tokens of the present topic
const FADE_PER_LAYER = 0.03 // how much the random part grows beside the embedding

const SCALE_FACTORS = [0.75, 0.9, 1.1, 1.25]
const meanSquareFactor = Math.sqrt(SCALE_FACTORS.reduce((sum, factor) => sum + factor * factor, 0) / 4)

/** An endless source of random bytes, the same for the same seed. */
export interface RandomBytes {
  /** Valid until the next call. */
  take(count: number): Uint8Array
}

/** The bytes of a matrix's weight, scales and biases: the weight in pieces, because it may be large. */
export interface MatrixContent {
  readonly weightBytes: number
  readonly scales: Uint16Array // [rows, cols / 64], BF16
  readonly biases: Uint16Array // [rows, cols / 64], BF16
}

export class SyntheticWeights {
  private readonly common: Float32Array // [hidden / 64], ±1
  private readonly topicDirections: Float32Array[] // [topics][hidden / 64], ±1
  private readonly strength: number // 0..1: how much of the embedding is common and topic

  constructor(
    private readonly spec: SyntheticSpec,
    random: RandomBytes,
  ) {
    const groups = spec.config.hiddenSize / GROUP
    this.common = signs(groups, random)
    this.topicDirections = Array.from({ length: TOPICS }, () => signs(groups, random))
    this.strength = Math.min(1, spec.skew)
  }

  matrix(matrix: MatrixSpec, bits: QuantBits, layer: number, random: RandomBytes): MatrixContent {
    const { rows, cols, name } = matrix
    const sizes = quantizedSizes(rows, cols, bits, GROUP)
    const structure = this.structureOf(matrix, layer, random)
    const { scales, biases } = fillGroups(rows, cols / GROUP, bits, this.stdOf(name, cols), structure, random)
    return { weightBytes: sizes.weight, scales, biases }
  }

  vector(vector: VectorSpec, random: RandomBytes): Float32Array {
    const uniform = uniforms(vector.length, random)
    if (vector.name.endsWith('A_log')) return Float32Array.from(uniform, u => Math.log(0.1 + 15.9 * u))
    // Through softplus this gives steps of 0.001 to 0.1.
    if (vector.name.endsWith('dt_bias')) return Float32Array.from(uniform, u => Math.log(Math.expm1(0.001 * 100 ** u)))
    if (vector.name.endsWith('conv1d.weight')) return Float32Array.from(uniform, u => (u - 0.5) * 1.7)
    if (/norm\.weight$/.test(vector.name)) return new Float32Array(vector.length).fill(1)
    return Float32Array.from(uniform, u => (u - 0.5) * BIAS_RANGE) // biases, sinks
  }

  /** Standard deviation of the random part. */
  stdOf(name: string, cols: number): number {
    if (name.endsWith('embed_tokens')) {
      return EMBEDDING_RMS * Math.sqrt(1 - this.strength * (COMMON_SHARE + TOPIC_SHARE))
    }
    const addsToStream = /(o_proj|out_proj|down_proj|down)$/.test(name)
    return (addsToStream ? BLOCK_GAIN : 1) / Math.sqrt(cols)
  }

  /** What is added to the biases: a value per row and group; null for most matrices. */
  private structureOf(matrix: MatrixSpec, layer: number, random: RandomBytes): Structure | null {
    if (this.strength === 0) return null
    const { name, rows, cols } = matrix
    const commonAmplitude = Math.sqrt(this.strength * COMMON_SHARE)
    const topicAmplitude = Math.sqrt(this.strength * TOPIC_SHARE)
    if (name.endsWith('embed_tokens')) {
      const common = this.common
      const of = this.topicDirections.map(direction =>
        direction.map((sign, g) => EMBEDDING_RMS * (commonAmplitude * common[g] + topicAmplitude * sign)),
      )
      return { classes: TOPICS, of }
    }
    if (name.endsWith('lm_head')) {
      const scale = (STAY_BOOST * this.strength) / (cols * topicAmplitude)
      return { classes: TOPICS, of: this.topicDirections.map(direction => direction.map(sign => sign * scale)) }
    }
    if (!name.endsWith('mlp.gate')) return null
    const fade = Math.sqrt(1 + layer * FADE_PER_LAYER)
    const popular = (this.spec.skew * POPULARITY_STD * fade) / (cols * commonAmplitude)
    const liking = (this.spec.skew * LIKING_STD * fade) / (GROUP * Math.sqrt(cols / GROUP) * topicAmplitude)
    const popularity = gaussians(rows, random)
    const direction = gaussians(rows * (cols / GROUP), random)
    const of = Array.from({ length: rows }, (_, row) =>
      this.common.map((sign, g) => popularity[row] * popular * sign + direction[row * (cols / GROUP) + g] * liking),
    )
    return { classes: rows, of }
  }
}

/** Row r gets the values of class r mod classes. */
interface Structure {
  readonly classes: number
  readonly of: readonly Float32Array[] // [classes][groups]
}

export function fillGroups(
  rows: number,
  groups: number, // per row
  bits: QuantBits,
  std: number,
  structure: Structure | null,
  random: RandomBytes,
): { scales: Uint16Array; biases: Uint16Array } {
  const levels = 2 ** bits
  const middle = (levels - 1) / 2
  const unit = std / (Math.sqrt((levels * levels - 1) / 12) * meanSquareFactor)
  const scaleValues = SCALE_FACTORS.map(factor => unit * factor)
  const scaleBits = scaleValues.map(float32ToBfloat16)
  const classes = structure?.classes ?? 1
  // [class][group][scale], so that a row is filled by lookups.
  const biasBits = new Uint16Array(classes * groups * 4)
  for (let i = 0; i < biasBits.length; i++) {
    const value = structure?.of[Math.floor(i / (groups * 4))][(i >> 2) % groups] ?? 0
    biasBits[i] = float32ToBfloat16(value - middle * scaleValues[i & 3])
  }
  const scales = new Uint16Array(rows * groups)
  const biases = new Uint16Array(rows * groups)
  for (let row = 0; row < rows; row++) {
    const choice = random.take(groups)
    const base = (row % classes) * groups
    for (let g = 0; g < groups; g++) {
      const pick = choice[g] & 3
      scales[row * groups + g] = scaleBits[pick]
      biases[row * groups + g] = biasBits[(base + g) * 4 + pick]
    }
  }
  return { scales, biases }
}

function signs(count: number, random: RandomBytes): Float32Array {
  const bytes = random.take(count)
  return Float32Array.from({ length: count }, (_, i) => (bytes[i] & 1 ? 1 : -1))
}

function uniforms(count: number, random: RandomBytes): Float64Array {
  const bytes = random.take(count * 4)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return Float64Array.from({ length: count }, (_, i) => (view.getUint32(i * 4, true) + 0.5) / 2 ** 32)
}

function gaussians(count: number, random: RandomBytes): Float64Array {
  const uniform = uniforms(2 * count, random)
  return Float64Array.from(
    { length: count },
    (_, i) => Math.sqrt(-2 * Math.log(uniform[2 * i])) * Math.cos(2 * Math.PI * uniform[2 * i + 1]),
  )
}
