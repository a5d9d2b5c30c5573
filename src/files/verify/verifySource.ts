// Verifies a model as it was downloaded, MLX or Hugging Face. Its files carry no checksums; those of the hub's cache are
// named after their content, which is as good. Else the headers, the shapes and the floats are looked at: what a conversion
// would refuse is found without one.
import { ModelNotFoundError, MoefluxError } from '../../base/errors.js'
import { parseConfig } from '../../model/config.js'
import { PROJECTIONS } from '../../model/expertLayout.js'
import { listSpecs, planTensors } from '../../model/tensorPlan.js'
import { planPacking } from '../convert/packingPlan.js'
import { INDEX_NAME, openShardedModel, type ShardedModel } from '../convert/shardedModel.js'
import type { Slice, SourceMatrix } from '../convert/sourceMatrix.js'
import { SourceModel } from '../convert/sourceModel.js'
import { readJson } from '../packed/openPacked.js'
import { CONFIG_NAME, COPIED_NAMES, GENERATION_CONFIG_NAME } from '../packed/packedNames.js'
import {
  type ComparedFile,
  collect,
  isAbout,
  type ListedFolder,
  ReadCounter,
  type VerifyOptions,
  type VerifyReport,
} from '../verifyReport.js'
import { compareFile } from './compareFile.js'
import { type Floats, lookAtFloats } from './verifyFloats.js'

export async function verifySource(
  folder: ListedFolder,
  names: readonly string[],
  options: VerifyOptions,
): Promise<VerifyReport> {
  if (!names.includes(CONFIG_NAME)) {
    throw new ModelNotFoundError(folder.location, `holds no ${CONFIG_NAME}: it is not a model`)
  }
  const problems: MoefluxError[] = []
  const compared: ComparedFile[] = []
  let sharded: ShardedModel | null = null
  let model: SourceModel | null = null
  await collect(problems, async () => {
    const config = await readJson(folder, CONFIG_NAME)
    sharded = await openShardedModel(folder)
    model = new SourceModel(sharded, parseConfig(config ?? {}, await readJson(folder, GENERATION_CONFIG_NAME)))
    planPacking(model, {}) // every tensor is there, and has its shape
  })
  const opened = { sharded: sharded as ShardedModel | null, model: model as SourceModel | null }
  try {
    const shards = [...(opened.sharded?.shards.keys() ?? names.filter(name => name.endsWith('.safetensors')))]
    const texts = [CONFIG_NAME, INDEX_NAME, ...COPIED_NAMES].filter(name => names.includes(name))
    const used = [...texts, ...shards]
    const sizes = await Promise.all(used.map(name => folder.sizeOf(name)))
    const counter = new ReadCounter(
      sizes.reduce((sum, size) => sum + size, 0),
      options,
    )
    for (const name of used) {
      options.signal?.throwIfAborted()
      const hub = await folder.hubDigest(name)
      if (hub === null) continue
      const result = await compareFile(folder, name, { hub }, { advance: counter.add, signal: options.signal })
      if (result instanceof MoefluxError) problems.unshift(result)
      else compared.push({ name, size: result, with: 'hub' })
    }
    const isCompared = new Set(compared.map(file => file.name))
    const rest = used.filter(name => !isCompared.has(name) && !problems.some(problem => isAbout(problem, folder, name)))
    if (opened.model !== null && problems.length === 0) {
      const all = [...sourceFloats(opened.model)]
      for (const name of rest) {
        const source = opened.sharded?.shards.get(name)
        const floats = all.filter(each => each.source === source)
        await collect(problems, async () => {
          const problem = await lookAtFloats(floats, counter.add, options.signal)
          if (problem !== null) problems.push(problem)
        })
      }
    }
    const uncompared = rest
      .filter(name => !problems.some(problem => isAbout(problem, folder, name)))
      .map(name => ({ name, reason: 'it has no checksum', looked: lookedAt(name, opened.model !== null) }))
    const extra = names.filter(name => !used.includes(name))
    const kind = opened.model?.layout ?? 'unknown'
    return { kind, compared, uncompared, extra, bytes: counter.bytes, problems }
  } finally {
    await opened.sharded?.close()
  }
}

function lookedAt(name: string, opens: boolean): string | null {
  if (!opens) return null
  if (name.endsWith('.safetensors')) return 'its tensors are all there and their floats are finite'
  return name === CONFIG_NAME || name === INDEX_NAME || name === GENERATION_CONFIG_NAME ? 'it is well-formed' : null
}

/** Every float that the model needs. */
function* sourceFloats(model: SourceModel): Generator<Floats> {
  for (const spec of listSpecs(planTensors(model.config))) {
    if (spec.kind === 'matrix') yield* matrixFloats(model.matrix(spec))
    else {
      const { name, type, data } = model.vector(spec)
      yield { ...data, type, what: `values of ${name}` }
    }
  }
  const { expertLayers, numExperts } = model.config
  for (const layer of expertLayers) {
    for (let expert = 0; expert < numExperts; expert++) {
      for (const projection of PROJECTIONS) yield* matrixFloats(model.expert(layer, expert, projection))
    }
  }
}

function* matrixFloats(matrix: SourceMatrix): Generator<Floats> {
  const floats = (kind: string, slice: Slice, type: Floats['type']): Floats => ({
    ...slice,
    type,
    what: `${kind} of ${matrix.name}`,
  })
  if (matrix.kind === 'plain') yield floats('weights', matrix.weight, matrix.type)
  else if (matrix.kind === 'quantized') {
    yield floats('scales', matrix.scales, matrix.scaleType)
    yield floats('biases', matrix.biases, matrix.scaleType)
  }
}
