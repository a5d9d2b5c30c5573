// Reads a whole packed folder and says what is wrong with it. With checksums every file is compared with its own; a
// folder packed by others has none, and its scales are looked at instead: a broken one would poison every token.
import { createHash } from 'node:crypto'
import { FormatError, MoefluxError, ReadError } from '../errors.js'
import { PROJECTIONS } from '../model/expertLayout.js'
import { findNonFinite } from '../model/floats.js'
import type { ByteRange, Matrix } from '../model/tensors.js'
import type { ByteSource, Folder } from './byteSource.js'
import type { FileChecksum, Metadata } from './manifest.js'
import { openPacked, readMetadata } from './openPacked.js'

const BLOCK_BYTES = 4 * 2 ** 20

export interface VerifyOptions {
  readonly onProgress?: (progress: { phase: string; loaded: number; total: number }) => void
  readonly signal?: AbortSignal
}

export interface VerifyReport {
  readonly files: number
  readonly bytes: number // read
  readonly hasChecksums: boolean
  readonly problems: readonly MoefluxError[]
}

export async function verifyPacked(folder: Folder, options: VerifyOptions = {}): Promise<VerifyReport> {
  const metadata = await readMetadata(folder)
  return metadata === null ? verifyScales(folder, options) : verifyChecksums(folder, metadata, options)
}

async function verifyChecksums(folder: Folder, metadata: Metadata, options: VerifyOptions): Promise<VerifyReport> {
  const problems: MoefluxError[] = []
  const total = [...metadata.files.values()].reduce((sum, file) => sum + file.size, 0)
  let loaded = 0
  const advance = (bytes: number) => {
    loaded += bytes
    options.onProgress?.({ phase: 'verify', loaded, total })
  }
  for (const [name, want] of metadata.files) {
    options.signal?.throwIfAborted()
    const before = loaded
    const problem = await checkFile(folder, name, want, advance, options.signal)
    if (problem !== null) problems.push(problem)
    advance(before + want.size - loaded)
  }
  if (problems.length === 0) await collect(problems, async () => (await openPacked(folder)).close())
  return { files: metadata.files.size, bytes: loaded, hasChecksums: true, problems }
}

async function checkFile(
  folder: Folder,
  name: string,
  want: FileChecksum,
  advance: (bytes: number) => void,
  signal?: AbortSignal,
): Promise<MoefluxError | null> {
  const file = `${folder.location}/${name}`
  let source: ByteSource
  try {
    source = await folder.open(name)
  } catch (error) {
    if (!(error instanceof MoefluxError)) throw error
    const detail = error instanceof ReadError ? error.detail : error.message
    return new FormatError('MISSING_FILE', file, detail, { cause: error })
  }
  try {
    if (source.size !== want.size) {
      return new FormatError('SIZE_MISMATCH', file, `has ${source.size} bytes, want ${want.size}`)
    }
    const hash = createHash('sha256')
    const block = new Uint8Array(Math.min(BLOCK_BYTES, source.size))
    for (let offset = 0; offset < source.size; offset += block.byteLength) {
      const bytes = block.subarray(0, Math.min(block.byteLength, source.size - offset))
      await source.read(offset, bytes, signal)
      hash.update(bytes)
      advance(bytes.byteLength)
    }
    const got = hash.digest('hex')
    if (got === want.sha256) return null
    const detail = `the checksum is ${got.slice(0, 16)}…, want ${want.sha256.slice(0, 16)}…: the file is damaged`
    return new FormatError('CHECKSUM_MISMATCH', file, detail)
  } catch (error) {
    if (error instanceof MoefluxError) return error
    throw error
  } finally {
    await source.close()
  }
}

async function verifyScales(folder: Folder, options: VerifyOptions): Promise<VerifyReport> {
  const model = await openPacked(folder)
  try {
    const problems: MoefluxError[] = []
    const { layout, files } = model.experts
    const { numExperts } = model.config
    let bytes = 0
    const check = async (source: ByteSource, base: number, matrix: Matrix) => {
      for (const [kind, range] of scaleRanges(matrix)) {
        options.signal?.throwIfAborted()
        const data = new Uint8Array(range.size)
        await source.read(base + range.offset, data, options.signal)
        bytes += data.byteLength
        if (matrix.kind === 'quantized' && findNonFinite(matrix.scaleType, data) >= 0) {
          const where = base === 0 && source === model.weights ? matrix.name : `${matrix.name} of the expert at ${base}`
          problems.push(new FormatError('NON_FINITE', source.name, `${kind} of ${where} hold NaN or infinity`))
        }
      }
    }
    for (const matrix of residentMatrices(model)) await check(model.weights, 0, matrix)
    for (const [layer, file] of files.entries()) {
      for (let expert = 0; expert < numExperts; expert++) {
        for (const projection of PROJECTIONS) await check(file, expert * layout.expertSize, layout[projection])
      }
      options.onProgress?.({ phase: 'verify', loaded: layer + 1, total: files.length })
    }
    return { files: files.length + 1, bytes, hasChecksums: false, problems }
  } finally {
    await model.close()
  }
}

function scaleRanges(matrix: Matrix): [string, ByteRange][] {
  return matrix.kind === 'plain'
    ? []
    : [
        ['scales', matrix.scales],
        ['biases', matrix.biases],
      ]
}

function residentMatrices(model: Awaited<ReturnType<typeof openPacked>>): Matrix[] {
  const { tensors } = model
  const matrices: Matrix[] = [tensors.embed, tensors.lmHead]
  for (const layer of tensors.layers) {
    for (const value of [...Object.values(layer), ...Object.values(layer.sharedExpert)]) {
      if (typeof value === 'object' && 'kind' in value) matrices.push(value as Matrix)
    }
  }
  return matrices
}

async function collect(problems: MoefluxError[], check: () => Promise<void>): Promise<void> {
  try {
    await check()
  } catch (error) {
    if (!(error instanceof MoefluxError)) throw error
    problems.push(error)
  }
}
