// The packed files of the served model over HTTP, also by ranges, so that a page can run the model
// in its own tab. A request names a file of the list in the model's manifest; its text never
// becomes a path. Files are read in pieces, as fast as the client takes them.
import { createHash } from 'node:crypto'
import type { Context } from 'hono'
import type { ByteSource, Model } from '../../index.js'
import { isPackedName, METADATA_NAME, type ModelEntry, modelEntry, readMetadata, siteName } from '../../internal.js'
import { ApiError } from './apiError.js'

interface ModelFile {
  readonly name: string
  readonly size: number
  readonly etag: string
}

const PIECE_BYTES = 256 * 1024

export class ModelFiles {
  private constructor(
    private readonly model: Model,
    readonly entry: ModelEntry,
    private readonly files: ReadonlyMap<string, ModelFile>,
  ) {}

  /** Null for a model without a manifest, which lists the files that are complete. */
  static async of(model: Model, modelId: string): Promise<ModelFiles | null> {
    const [metadata, manifest] = await Promise.all([readMetadata(model.folder), model.folder.readText(METADATA_NAME)])
    if (metadata === null || manifest === null) return null
    const files = new Map<string, ModelFile>()
    for (const [name, { size, sha256 }] of metadata.files) {
      if (isPackedName(name)) files.set(name, { name, size, etag: `"${sha256}"` })
    }
    const bytes = Buffer.from(manifest)
    const etag = `"${createHash('sha256').update(bytes).digest('hex')}"`
    files.set(METADATA_NAME, { name: METADATA_NAME, size: bytes.length, etag })
    return new ModelFiles(model, modelEntry(modelId, metadata), files)
  }

  /**
   * Answers `/models/<path>`. A client that takes nothing for `readerTimeoutMs` is cut off: it
   * holds a file open.
   */
  async respond(c: Context, path: string, readerTimeoutMs?: number): Promise<Response> {
    const prefix = `${siteName(this.entry.name)}/`
    const file = path.startsWith(prefix) ? this.files.get(path.slice(prefix.length)) : undefined
    if (file === undefined) throw new ApiError('not_found', `there is no model file '${path.slice(0, 200)}'`)
    const headers: Record<string, string> = {
      'accept-ranges': 'bytes',
      'cache-control': 'no-cache',
      'content-type': file.name.endsWith('.json') ? 'application/json' : 'application/octet-stream',
      'cross-origin-resource-policy': 'same-origin',
      etag: file.etag,
      'x-content-type-options': 'nosniff',
    }
    if (matches(c.req.header('if-none-match'), file.etag)) return new Response(null, { status: 304, headers })
    // The client would join a range of a changed file with bytes of the old one.
    const condition = c.req.header('if-range')
    const wanted = condition === undefined || condition === file.etag ? c.req.header('range') : undefined
    const range = byteRange(wanted, file.size)
    if (range === 'unsatisfiable') {
      return new Response(null, { status: 416, headers: { ...headers, 'content-range': `bytes */${file.size}` } })
    }
    const { start, end } = range === 'whole' ? { start: 0, end: file.size } : range
    headers['content-length'] = String(end - start)
    if (range !== 'whole') headers['content-range'] = `bytes ${start}-${end - 1}/${file.size}`
    const status = range === 'whole' ? 200 : 206
    if (c.req.method === 'HEAD') return new Response(null, { status, headers })
    const source = await this.model.folder.open(file.name)
    if (source.size !== file.size) {
      await source.close()
      throw new ApiError('server', `${file.name} has ${source.size} bytes, want ${file.size} as its manifest says`)
    }
    const cutOff = () => c.env?.outgoing?.destroy()
    return new Response(filePieces(source, start, end, cutOff, readerTimeoutMs), { status, headers })
  }
}

function matches(header: string | undefined, etag: string): boolean {
  const tags = header?.split(',').map(tag => tag.trim().replace(/^W\//, ''))
  return tags !== undefined && (tags.includes(etag) || tags.includes('*'))
}

interface ByteRange {
  readonly start: number
  readonly end: number // the byte after the last one
}

/**
 * The range of a file that a Range header asks for. Several ranges, other units and nonsense count
 * as no range at all, as HTTP allows; a range that has no byte of the file is unsatisfiable.
 */
export function byteRange(header: string | undefined, size: number): ByteRange | 'whole' | 'unsatisfiable' {
  const match = /^\s*bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*$/i.exec(header ?? '')
  if (match === null) return 'whole'
  const [, first, last] = match
  if (first === '' && last === '') return 'whole'
  if (first === '') {
    const length = Math.min(Number(last), size)
    return length === 0 ? 'unsatisfiable' : { start: size - length, end: size }
  }
  const start = Number(first)
  if (last !== '' && Number(last) < start) return 'whole'
  if (start >= size) return 'unsatisfiable'
  return { start, end: last === '' ? size : Math.min(Number(last) + 1, size) }
}

/** The bytes from `start` to `end`. `cutOff` drops a client that takes none for too long. */
export function filePieces(
  source: ByteSource,
  start: number,
  end: number,
  cutOff: () => void,
  readerTimeoutMs = 60_000,
): ReadableStream<Uint8Array> {
  let at = start
  let timer: NodeJS.Timeout | undefined
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        clearTimeout(timer)
        try {
          const piece = new Uint8Array(Math.min(PIECE_BYTES, end - at))
          if (piece.length > 0) {
            await source.read(at, piece)
            controller.enqueue(piece)
            at += piece.length
          }
          if (at < end) {
            timer = setTimeout(() => {
              controller.error(new Error('nobody reads'))
              cutOff()
              void source.close()
            }, readerTimeoutMs)
            timer.unref()
            return
          }
          controller.close()
        } catch (error) {
          controller.error(error)
        }
        await source.close()
      },
      async cancel() {
        clearTimeout(timer)
        await source.close()
      },
    },
    { highWaterMark: 1 },
  )
}
