// A name for a model's weights and shapes that is the same wherever equal bytes lie: snapshots carry it, so that the
// state of one model is never loaded into another. With checksums it is a hash of them; without, of samples.
import { hex, sha256 } from '../../base/sha256.js'
import type { ModelConfig } from '../../model/config.js'
import type { StoredTensors } from '../../model/resolveTensors.js'
import type { ByteSource } from '../source.js'
import type { Metadata } from './manifest.js'
import { type ExpertSetName, expertFileName, WEIGHTS_NAME } from './packedNames.js'

const SAMPLE_BYTES = 4096
const SAMPLES_OF_WEIGHTS = 16

export interface FingerprintParts {
  readonly config: ModelConfig
  readonly stored: StoredTensors
  readonly metadata: Metadata | null
  readonly set: ExpertSetName
  readonly weights: ByteSource
  readonly files: readonly ByteSource[] // expert files of the set in use
}

export async function fingerprintOf(parts: FingerprintParts): Promise<string> {
  const { config, metadata, set, weights, files } = parts
  const shapes = JSON.stringify(shapesOf(config))
  const lines = ['moeflux fingerprint 1', shapes, JSON.stringify([...parts.stored].sort(byName))]
  const names = [WEIGHTS_NAME, ...config.expertLayers.map(layer => expertFileName(set, layer))]
  if (metadata !== null && names.every(name => metadata.files.has(name))) {
    for (const name of names) lines.push(`${name} ${metadata.files.get(name)!.sha256}`)
  } else {
    lines.push(`${WEIGHTS_NAME} ${weights.size} ${await sampleHash(weights, SAMPLES_OF_WEIGHTS)}`)
    for (const [i, file] of files.entries()) {
      lines.push(`${names[i + 1]} ${file.size} ${await sampleHash(file, 1)}`)
    }
  }
  return hex(await sha256(new TextEncoder().encode(lines.join('\n'))))
}

/** What the state of a sequence depends on. The order of the fields is part of every fingerprint there is. */
function shapesOf(config: ModelConfig): object {
  const c = config
  return {
    modelType: null,
    hiddenSize: c.hiddenSize,
    numLayers: c.numLayers,
    numHeads: c.numHeads,
    numKvHeads: c.numKvHeads,
    headDim: c.headDim,
    rotaryDim: c.rope.dims,
    ropeTheta: c.rope.theta,
    rmsNormEps: c.rmsNormEps,
    vocabSize: c.vocabSize,
    numExperts: c.numExperts,
    expertsPerToken: c.expertsPerToken,
    moeIntermediateSize: c.moeIntermediateSize,
    sharedExpertIntermediateSize: c.sharedExpertIntermediateSize,
    fullAttentionInterval: c.fullAttentionInterval,
    layerKinds: c.layerKinds,
    linearKeyHeads: c.linearKeyHeads,
    linearValueHeads: c.linearValueHeads,
    linearKeyDim: c.linearKeyDim,
    linearValueDim: c.linearValueDim,
    linearConvKernel: c.linearConvKernel,
    linearConvDim: c.linearConvDim,
    tieWordEmbeddings: c.tieWordEmbeddings,
    maxPositionEmbeddings: c.maxPositionEmbeddings,
    eosTokenIds: null,
    quantization: null,
    // The first family has no word of its layers here: its fingerprints are older than other families.
    ...(c.family === 'qwen3_5_moe' ? {} : { family: c.family, layers: c.layers }),
  }
}

/** Hash of `count` windows spread evenly over a source, the first at its start. */
export async function sampleHash(source: ByteSource, count: number): Promise<string> {
  const window = Math.min(SAMPLE_BYTES, source.size)
  const bytes = new Uint8Array(window * count)
  for (let i = 0; i < count; i++) {
    const offset = count === 1 ? 0 : Math.floor(((source.size - window) * i) / (count - 1))
    await source.read(offset, bytes.subarray(i * window, (i + 1) * window))
  }
  return hex(await sha256(bytes))
}

function byName(a: readonly [string, unknown], b: readonly [string, unknown]): number {
  return a[0] < b[0] ? -1 : 1
}
