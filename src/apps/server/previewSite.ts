// A static site on this machine, served as a web host should: right types, parts of files, headers that isolate the page. A
// path of a request is only looked up in the list of the site's files. Not meant for anybody else: it listens to this machine.
import { createReadStream } from 'node:fs'
import { mkdtemp, rm, stat } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { ModelNotFoundError } from '../../base/errors.js'
import { byteRange } from './modelFiles.js'
import { contentType, listStaticFiles, PAGE_HEADERS, type StaticFiles } from './staticFiles.js'

const HOST = '127.0.0.1'

interface PreviewSteps {
  write(folder: string): Promise<void>
  /** The site is served until this resolves. */
  whileServed(url: string): Promise<void>
}

/** Without a folder the site is written to a temporary one, which is gone afterwards. */
export async function withSitePreview(folder: string | undefined, port: number, steps: PreviewSteps): Promise<void> {
  const site = folder ?? (await mkdtemp(join(tmpdir(), 'moeflux-site-')))
  try {
    await steps.write(site)
    const server = await serveSite(site, port)
    try {
      await steps.whileServed(server.url)
    } finally {
      await server.close()
    }
  } finally {
    if (folder === undefined) await rm(site, { recursive: true, force: true })
  }
}

export async function serveSite(folder: string, port: number): Promise<{ url: string; close(): Promise<void> }> {
  const files = await listStaticFiles(folder)
  if (files === null) throw new ModelNotFoundError(folder, 'is not a folder')
  const server = createServer((request, response) => {
    answer(files, request, response).catch(() => response.destroy()) // the client sees that it is not whole
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, HOST, resolve)
  })
  return {
    url: `http://${HOST}:${(server.address() as AddressInfo).port}/`,
    async close() {
      server.closeAllConnections()
      await new Promise(resolve => server.close(resolve))
    },
  }
}

async function answer(files: StaticFiles, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { method = 'GET', headers } = request
  const file = files.get(pathOf(request.url ?? '/'))
  const refuse = (status: number, more = {}) => response.writeHead(status, { ...PAGE_HEADERS, ...more }).end()
  if (method !== 'GET' && method !== 'HEAD') return void refuse(405, { allow: 'GET, HEAD' })
  if (file === undefined) return void refuse(404)
  const { size, mtimeMs } = await stat(file)
  const etag = `"${size.toString(16)}-${Math.floor(mtimeMs).toString(16)}"`
  const common = {
    ...PAGE_HEADERS,
    ...{ 'content-type': contentType(file), 'accept-ranges': 'bytes', 'cache-control': 'no-cache', etag },
  }
  if (headers['if-none-match'] === etag) return void response.writeHead(304, common).end()
  const condition = headers['if-range']
  const range = byteRange(condition === undefined || condition === etag ? headers.range : undefined, size)
  if (range === 'unsatisfiable') return void refuse(416, { 'content-range': `bytes */${size}` })
  const { start, end } = range === 'whole' ? { start: 0, end: size } : range
  const part = range === 'whole' ? {} : { 'content-range': `bytes ${start}-${end - 1}/${size}` }
  response.writeHead(range === 'whole' ? 200 : 206, { ...common, ...part, 'content-length': end - start })
  if (method === 'HEAD' || end === start) return void response.end()
  await pipeline(createReadStream(file, { start, end: end - 1 }), response)
}

/** '' for what is no path: nothing has that name. */
function pathOf(url: string): string {
  try {
    return decodeURIComponent(url.split(/[?#]/, 1)[0])
  } catch {
    return ''
  }
}
