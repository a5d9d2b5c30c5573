// Keeps the page itself on the device, so that it opens without a network, and makes it cross-origin isolated on hosts
// that do not send the headers for it (threads need that). Answers of servers and model files never pass through here.

export {} // a module of its own: it is not part of the page

interface ExtendableEvent extends Event {
  waitUntil(work: Promise<unknown>): void
}
interface FetchEvent extends ExtendableEvent {
  readonly request: Request
  respondWith(response: Promise<Response>): void
}
interface WorkerScope {
  readonly registration: { readonly scope: string }
  readonly clients: { claim(): Promise<void> }
  skipWaiting(): Promise<void>
  addEventListener(type: 'install' | 'activate', listener: (event: ExtendableEvent) => void): void
  addEventListener(type: 'fetch', listener: (event: FetchEvent) => void): void
}
// Filled in by the build.
declare const __PRECACHE__: readonly string[]
declare const __ON_DEMAND__: readonly string[] // kept when they are first asked for

const worker = self as unknown as WorkerScope
const CACHE = 'moeflux-__VERSION__'
const scope = worker.registration.scope
const shell = new Set(__PRECACHE__.map(path => new URL(path, scope).href))
const onDemand = new Set(__ON_DEMAND__.map(path => new URL(path, scope).href))

worker.addEventListener('install', event => {
  event.waitUntil(
    (async () => {
      const cache = await caches.open(CACHE)
      await cache.addAll([...shell].map(url => new Request(url, { cache: 'reload' })))
      await worker.skipWaiting()
    })(),
  )
})

worker.addEventListener('activate', event => {
  event.waitUntil(
    (async () => {
      const old = (await caches.keys()).filter(name => name.startsWith('moeflux-') && name !== CACHE)
      await Promise.all(old.map(name => caches.delete(name)))
      await worker.clients.claim()
    })(),
  )
})

worker.addEventListener('fetch', event => {
  const { request } = event
  const url = new URL(request.url)
  url.hash = ''
  url.search = ''
  if (request.method !== 'GET' || !(shell.has(url.href) || onDemand.has(url.href))) return
  event.respondWith(request.mode === 'navigate' ? page(request, url.href) : asset(request, url.href))
})

/** The newest page where the network has one, else the kept one. */
async function page(request: Request, url: string): Promise<Response> {
  try {
    const response = await fetch(request)
    if (response.ok || response.type === 'opaqueredirect') return isolated(response)
  } catch {
    // no network: the kept page does
  }
  const kept = await (await caches.open(CACHE)).match(url)
  return kept ? isolated(kept) : Response.error()
}

/** Names of assets hold a hash of what is in them: a kept one is never out of date. */
async function asset(request: Request, url: string): Promise<Response> {
  const cache = await caches.open(CACHE)
  const kept = await cache.match(url)
  if (kept !== undefined) return isolated(kept)
  const response = await fetch(request)
  if (response.ok && onDemand.has(url)) await cache.put(url, response.clone()).catch(() => {}) // no room: asked for again
  return isolated(response)
}

function isolated(response: Response): Response {
  if (response.type === 'opaqueredirect' || response.headers.has('cross-origin-embedder-policy')) return response
  const headers = new Headers(response.headers)
  headers.set('cross-origin-opener-policy', 'same-origin')
  headers.set('cross-origin-embedder-policy', 'require-corp')
  headers.set('cross-origin-resource-policy', 'same-origin')
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers })
}
