// Asks a running server, at the address of `moeflux serve` or of --url.
import { type Command, InvalidArgumentError } from 'commander'
import { MoefluxError } from '../../base/errors.js'
import type { Cli } from './action.js'

export interface ServerOptions {
  readonly url: string
  readonly apiKey?: string
}

export interface LoadedModel {
  readonly name: string
  readonly size: number // bytes, 0 where it is not known
  readonly context_length?: number
  readonly expires_at?: string
}

const ANSWER_TIMEOUT_MS = 10_000

export function addServerOptions(command: Command): Command {
  return command
    .option('--url <url>', 'address of the server', serverUrl, 'http://127.0.0.1:11435')
    .option('--api-key <key>', 'key of the server (or set MOEFLUX_API_KEY)')
}

/** '127.0.0.1:8080' and 'http://box:8080/v1/' name a server as well. */
function serverUrl(text: string): string {
  const url = /^[a-z]+:\/\//i.test(text) ? text : `http://${text}`
  if (!URL.canParse(url) || !/^https?:/i.test(url))
    throw new InvalidArgumentError('Want an address like http://127.0.0.1:11435.')
  return url.replace(/\/+$/, '').replace(/\/v1$/, '')
}

export async function loadedModels(cli: Cli, options: ServerOptions): Promise<LoadedModel[]> {
  const { models } = (await askServer(cli, options, '/api/ps')) as { models?: unknown }
  if (!Array.isArray(models)) throw notMoeflux(options)
  return models
}

/** The JSON that the server answers; `body` is posted. */
export async function askServer(cli: Cli, options: ServerOptions, path: string, body?: object): Promise<object> {
  const { url } = options
  const key = options.apiKey ?? (process.env.MOEFLUX_API_KEY ?? '').split(',')[0].trim()
  const response = await fetch(url + path, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'content-type': 'application/json', ...(key !== '' && { authorization: `Bearer ${key}` }) },
    body: body && JSON.stringify(body),
    signal: AbortSignal.any([cli.signal, AbortSignal.timeout(ANSWER_TIMEOUT_MS)]),
  }).catch(cause => {
    cli.signal.throwIfAborted()
    const advice = "start one with 'moeflux serve', or name another with --url"
    throw new MoefluxError('NO_SERVER', `no server answers at ${url}: ${advice}`, { cause })
  })
  const answer = (await response.json().catch(() => null)) as { error?: unknown } | null
  if (response.ok && answer !== null && typeof answer === 'object') return answer
  if (response.status === 401) {
    throw new MoefluxError('NO_SERVER', `${url}: the server wants a key: give --api-key, or set MOEFLUX_API_KEY`)
  }
  if (typeof answer?.error === 'string') throw new MoefluxError('NO_SERVER', `${url}: ${answer.error}`)
  throw notMoeflux(options)
}

function notMoeflux({ url }: ServerOptions): MoefluxError {
  return new MoefluxError('NO_SERVER', `${url}: what answers there is not a moeflux server`)
}
