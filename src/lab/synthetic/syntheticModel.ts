// Writes a synthetic model as a packed folder, once: in the folder of a lock, from where it is moved when it is whole.
import { createCipheriv, createHash } from 'node:crypto'
import { mkdir, rename, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Progress } from '../../backends/backend.js'
import { DiskFullError } from '../../base/errors.js'
import { ChunkWriter } from '../../experts/readers/nodeChunkWriter.js'
import { freeBytes, writing } from '../../files/diskFull.js'
import { lockFolder } from '../../files/folderLock.js'
import { type BlockShape, BlockSummer, expertBlockBytes, formatChecksums } from '../../files/packed/blockChecksums.js'
import { type FileChecksum, formatManifest, formatMetadata } from '../../files/packed/manifest.js'
import {
  CONFIG_NAME,
  expertChecksumsName,
  expertFileName,
  MANIFEST_NAME,
  METADATA_NAME,
  WEIGHTS_NAME,
} from '../../files/packed/packedNames.js'
import { defaultExpertFormats, type ExpertPart, expertParts, PROJECTIONS } from '../../model/expertLayout.js'
import { float32ToBfloat16 } from '../../model/floats.js'
import type { StoredTensor } from '../../model/resolveTensors.js'
import { allExpertsBytes, expertBytes, residentBytes } from '../../model/sizes.js'
import { listSpecs, type MatrixSpec, planTensors, type VectorSpec } from '../../model/tensorPlan.js'
import type { QuantBits } from '../../model/tensors.js'
import type { SyntheticSpec } from './syntheticSpec.js'
import { fillGroups, type RandomBytes, SyntheticWeights } from './syntheticWeights.js'

export interface SyntheticModelOptions {
  readonly onProgress?: (progress: Progress) => void
  readonly onNotice?: (line: string) => void
  readonly signal?: AbortSignal
}

const TENSOR_ALIGNMENT = 64
const GATE_BITS = 8
const GROUP = 64
const PIECE_BYTES = 4 << 20

/** The model's folder under `home`, written first where it is not there yet. Of several processes one writes. */
export async function ensureSyntheticModel(
  spec: SyntheticSpec,
  home: string,
  options: SyntheticModelOptions = {},
): Promise<string> {
  const folder = join(home, 'synthetic', spec.name)
  if (await isWhole(folder)) return folder
  const lock = await lockFolder(join(home, 'synthetic', `.${spec.name}.lock`), {
    signal: options.signal,
    onWait: () => options.onNotice?.(`another process is writing ${folder}: waiting for it`),
  })
  try {
    if (await isWhole(folder)) return folder
    const total = expertsBytes(spec) + residentBytes(spec.config, { bits: 4, group: GROUP })
    const free = await freeBytes(home)
    if (free !== null && free < total * 1.02) throw new DiskFullError(folder, Math.ceil(total * 1.02), free)
    const partial = join(lock.folder, spec.name)
    await mkdir(spec.config.expertLayers.length > 0 ? join(partial, 'packed_experts') : partial, { recursive: true })
    const signal = options.signal === undefined ? lock.signal : AbortSignal.any([options.signal, lock.signal])
    await new ModelWriter(spec, partial, total, { ...options, signal }).write()
    await rename(folder, join(lock.folder, 'unfinished')).catch(() => {}) // mostly there is none
    await rename(partial, folder)
    return folder
  } catch (error) {
    throw await lock.explain(error)
  } finally {
    await lock.release()
  }
}

async function isWhole(folder: string): Promise<boolean> {
  return (await stat(join(folder, METADATA_NAME)).catch(() => null)) !== null
}

function expertsBytes(spec: SyntheticSpec): number {
  return allExpertsBytes(spec.config, { bits: spec.expertBits, group: GROUP })
}

class ModelWriter {
  private readonly weights: SyntheticWeights
  private loaded = 0

  constructor(
    private readonly spec: SyntheticSpec,
    private readonly folder: string,
    private readonly total: number,
    private readonly options: SyntheticModelOptions,
  ) {
    this.weights = new SyntheticWeights(spec, this.random('directions'))
  }

  async write(): Promise<void> {
    const { spec } = this
    const stored = await this.writeResident()
    const checksums = spec.config.expertLayers.length > 0 ? await this.writeAllExperts() : null
    await this.writeSmall(CONFIG_NAME, `${JSON.stringify(spec.json, null, 2)}\n`)
    await this.writeSmall(MANIFEST_NAME, formatManifest(spec.name, stored, spec.json))
    const metadata = formatMetadata({
      model: spec.name,
      source: { name: spec.name, layout: 'synthetic', identity: `seed ${spec.seed}, skew ${spec.skew}` },
      options: { bits: 4, groupSize: GROUP, experts2bit: false },
      files: new Map(checksums && [[expertChecksumsName('packed_experts'), fileChecksum(checksums)]]),
      experts: new Map(checksums && [['packed_experts', [this.parts()]]]),
    })
    await this.writeSmall(METADATA_NAME, metadata)
  }

  /** Gives the checksums of their blocks. */
  private async writeAllExperts(): Promise<Uint8Array> {
    const { expertLayers, numExperts } = this.spec.config
    const recordBytes = expertBytes(this.spec.config, { bits: this.spec.expertBits, group: GROUP })
    const blockBytes = expertBlockBytes(recordBytes)
    const shape = { files: expertLayers.length, records: numExperts, recordBytes, blockBytes }
    const sums: bigint[] = []
    for (const layer of expertLayers) sums.push(...(await this.writeExperts(layer, shape)))
    const checksums = formatChecksums({ ...shape, sums: BigUint64Array.from(sums) })
    await this.writeSmall(expertChecksumsName('packed_experts'), checksums)
    return checksums
  }

  private parts(): ExpertPart[] {
    return expertParts(this.spec.config, defaultExpertFormats(this.spec.expertBits))
  }

  private async writeResident(): Promise<Map<string, StoredTensor>> {
    const stored = new Map<string, StoredTensor>()
    const random = this.random('resident')
    await this.writeFile(WEIGHTS_NAME, async writer => {
      for (const spec of listSpecs(planTensors(this.spec.config))) {
        if (spec.kind === 'vector') await this.writeVector(writer, spec, stored, random)
        else await this.writeMatrix(writer, spec, stored, random)
      }
    })
    return stored
  }

  private async writeMatrix(
    writer: ChunkWriter,
    spec: MatrixSpec,
    stored: Map<string, StoredTensor>,
    random: RandomBytes,
  ): Promise<void> {
    const bits: QuantBits = spec.isGate ? GATE_BITS : 4
    const { weightBytes, scales, biases } = this.weights.matrix(spec, bits, layerOf(spec.name), random)
    const weightShape = [spec.rows, (spec.cols * bits) / 32]
    const groupShape = [spec.rows, spec.cols / GROUP]
    await writer.pad(TENSOR_ALIGNMENT)
    const quantization = { bits, groupSize: GROUP }
    stored.set(`${spec.name}.weight`, {
      offset: writer.size,
      size: weightBytes,
      shape: weightShape,
      dtype: 'U32',
      ...quantization,
    })
    for (let done = 0; done < weightBytes; done += PIECE_BYTES) {
      await this.append(writer, random.take(Math.min(PIECE_BYTES, weightBytes - done)))
    }
    for (const [kind, values] of [
      ['scales', scales],
      ['biases', biases],
    ] as const) {
      await writer.pad(TENSOR_ALIGNMENT)
      const place = { offset: writer.size, size: values.byteLength, shape: groupShape, dtype: 'BF16' }
      stored.set(`${spec.name}.${kind}`, place)
      await this.append(writer, bytesOf(values))
    }
  }

  private async writeVector(
    writer: ChunkWriter,
    spec: VectorSpec,
    stored: Map<string, StoredTensor>,
    random: RandomBytes,
  ): Promise<void> {
    const values = this.weights.vector(spec, random)
    const wide = spec.role === 'decay'
    const bytes = bytesOf(wide ? values : Uint16Array.from(values, float32ToBfloat16))
    await writer.pad(TENSOR_ALIGNMENT)
    const shape = spec.name.endsWith('conv1d.weight') ? [spec.length / 4, 4, 1] : [spec.length]
    stored.set(spec.name, { offset: writer.size, size: bytes.length, shape, dtype: wide ? 'F32' : 'BF16' })
    await this.append(writer, bytes)
  }

  /**
   * Scales and biases are the same for all experts of a layer; their weights are not. Returns the checksums of the experts'
   * blocks: streaming is measured with the checks that it has for everybody.
   */
  private async writeExperts(layer: number, shape: BlockShape): Promise<BigUint64Array> {
    const summer = new BlockSummer(shape)
    const { config, expertBits } = this.spec
    const random = this.random(`experts of layer ${layer}`)
    const parts = this.parts()
    const record = new Uint8Array(shape.recordBytes) // biases stay 0
    for (const projection of PROJECTIONS) {
      const find = (kind: string) => parts.find(part => part.projection === projection && part.kind === kind)!
      const [rows, groups] = find('scales').shape
      const std = this.weights.stdOf(projection, groups * GROUP)
      const { scales, biases } = fillGroups(rows, groups, expertBits, std, null, random)
      record.set(bytesOf(scales), find('scales').offset)
      record.set(bytesOf(biases), find('biases').offset)
    }
    const weights = parts.filter(part => part.kind === 'weight')
    await this.writeFile(expertFileName('packed_experts', layer), async writer => {
      for (let expert = 0; expert < config.numExperts; expert++) {
        for (const { offset, size } of weights) record.set(random.take(size), offset)
        summer.push(record)
        await this.append(writer, record)
      }
    })
    return summer.finish()
  }

  private async writeFile(name: string, fill: (writer: ChunkWriter) => Promise<void>): Promise<void> {
    const path = join(this.folder, name)
    await writing(path, async () => {
      const writer = await ChunkWriter.create(path)
      try {
        await fill(writer)
      } catch (error) {
        await writer.discard()
        throw error
      }
      await writer.finish()
    })
  }

  private async writeSmall(name: string, content: string | Uint8Array): Promise<void> {
    const path = join(this.folder, name)
    await writing(path, () => writeFile(path, content))
  }

  private async append(writer: ChunkWriter, bytes: Uint8Array): Promise<void> {
    this.options.signal?.throwIfAborted()
    await writer.append(bytes)
    this.loaded += bytes.length
    this.options.onProgress?.({ phase: 'writing a synthetic model', loaded: this.loaded, total: this.total })
  }

  /** A cipher's key stream: the fastest good random bytes that Node has. */
  private random(purpose: string): RandomBytes {
    const key = createHash('sha256').update(`moeflux synthetic 1 ${this.spec.seed} ${purpose}`).digest().subarray(0, 16)
    const cipher = createCipheriv('aes-128-ctr', key, Buffer.alloc(16))
    const zeros = Buffer.alloc(PIECE_BYTES)
    return { take: count => cipher.update(count <= PIECE_BYTES ? zeros.subarray(0, count) : Buffer.alloc(count)) }
  }
}

function layerOf(name: string): number {
  return Number(/^model\.layers\.(\d+)\./.exec(name)?.[1] ?? 0)
}

function fileChecksum(bytes: Uint8Array): FileChecksum {
  return { size: bytes.length, sha256: createHash('sha256').update(bytes).digest('hex') }
}

function bytesOf(values: Uint16Array | Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
}
