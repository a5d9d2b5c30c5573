// Files of the web UI. The list is read once at start: a path from a request is only ever looked up in it, and never
// joined to a folder.
import { readdir, readFile } from 'node:fs/promises'
import { extname, join } from 'node:path'

export type StaticFiles = ReadonlyMap<string, string> // path in the URL -> file

const TYPES = new Map([
  ['.html', 'text/html; charset=utf-8'],
  ['.js', 'text/javascript; charset=utf-8'],
  ['.css', 'text/css; charset=utf-8'],
  ['.json', 'application/json'],
  ['.txt', 'text/plain; charset=utf-8'],
  ['.svg', 'image/svg+xml'],
  ['.png', 'image/png'],
  ['.ico', 'image/x-icon'],
  ['.wasm', 'application/wasm'],
  ['.woff2', 'font/woff2'],
  ['.webmanifest', 'application/manifest+json'],
])

/** Threads in the tab need an isolated page; nothing may be loaded from elsewhere. */
export const PAGE_HEADERS = {
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-embedder-policy': 'require-corp',
  'content-security-policy':
    "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; worker-src 'self' blob:; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
} as const

export function contentType(file: string): string {
  return TYPES.get(extname(file)) ?? 'application/octet-stream'
}

/** All files below a folder, or null where there is no such folder. */
export async function listStaticFiles(folder: string): Promise<StaticFiles | null> {
  let entries: string[]
  try {
    entries = await readdir(folder, { recursive: true })
  } catch {
    return null
  }
  const files = new Map<string, string>()
  for (const name of entries) {
    if (extname(name) === '') continue
    files.set(`/${name.replaceAll('\\', '/')}`, join(folder, name))
  }
  const index = files.get('/index.html')
  if (index !== undefined) files.set('/', index)
  return files
}

export async function staticFile(files: StaticFiles, path: string): Promise<Response | null> {
  const file = files.get(path)
  if (file === undefined) return null
  const hashed = /-[\w-]{8,}\.\w+$/.test(file)
  return new Response(await readFile(file), {
    headers: {
      'content-type': contentType(file),
      'cache-control': hashed ? 'public, max-age=31536000, immutable' : 'no-cache',
      ...PAGE_HEADERS,
    },
  })
}
