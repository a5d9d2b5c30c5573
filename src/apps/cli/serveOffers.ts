// Which models `moeflux serve` offers: those that are named, or all of the local store but the random ones of `bench`. One alone is
// opened before the server listens; several are opened when they are asked for.
import { basename } from 'node:path'
import { UsageError } from '../../base/errors.js'
import { listModels } from '../../index.js'
import { DEMO_NAME, openNodeFolder, readConfig, storeRoot } from '../../internal.js'
import type { ModelOffer } from '../server/serve.js'
import type { Cli } from './action.js'
import { findOrPull } from './findOrPull.js'
import type { ModelOptions } from './modelOptions.js'
import { openCliModel } from './openCliModel.js'

interface Wanted {
  readonly name: string // for clients
  readonly place: string // name or path, to be found
}

/** What is to be served: names for clients, and where each is. */
export async function wantedModels(named: readonly string[] | undefined, root = storeRoot()): Promise<Wanted[]> {
  if (named !== undefined) {
    const wanted = named.map(place => ({ name: clientName(place), place }))
    const twice = wanted.find(({ name }, i) => wanted.findIndex(other => other.name === name) !== i)
    if (twice !== undefined) throw new UsageError(`--model: two models would have the name '${twice.name}'`)
    return wanted
  }
  const stored = (await listModels(root)).filter(({ shelf, state }) => shelf !== 'synthetic' && state === 'ready')
  const names = stored.map(({ name, id }) => (stored.filter(other => other.name === name).length === 1 ? name : id))
  const wanted = stored.map(({ folder }, i) => ({ name: names[i], place: folder }))
  return wanted.some(({ name }) => name === DEMO_NAME) ? wanted : [...wanted, { name: DEMO_NAME, place: DEMO_NAME }]
}

/** Several models as a server takes them. */
export async function modelOffers(
  cli: Cli,
  wanted: readonly Wanted[],
  options: ModelOptions,
  pinned: readonly string[],
): Promise<ModelOffer[]> {
  const unknown = pinned.find(name => !wanted.some(other => other.name === name))
  if (unknown !== undefined) {
    throw new UsageError(`--pin ${unknown}: not one of ${wanted.map(({ name }) => name).join(', ')}`)
  }
  const offers: ModelOffer[] = []
  for (const { name, place } of wanted) {
    // What has to be downloaded is downloaded now, not while a client waits.
    const path = await findOrPull(cli, place, options.yes === true)
    offers.push({ ...(await modelOffer(cli, name, path, options)), pinned: pinned.includes(name) })
  }
  return offers
}

/** One that is here. */
export async function modelOffer(cli: Cli, name: string, path: string, options: ModelOptions): Promise<ModelOffer> {
  return {
    id: name,
    contextLength: await contextLength(path, options.context),
    open: hooks => openCliModel(cli, { ...options, model: path }, hooks),
  }
}

/** Null where that is known only when it is opened. */
async function contextLength(path: string, asked: number | undefined): Promise<number | null> {
  try {
    const { maxPositionEmbeddings } = await readConfig(await openNodeFolder(path, { links: 'any' }))
    return Math.min(asked ?? maxPositionEmbeddings, maxPositionEmbeddings)
  } catch {
    return null
  }
}

/** A path is called by its last part. */
function clientName(place: string): string {
  return /^\.{0,2}[\\/]|\.gguf$|^[a-z0-9]+:\/\//i.test(place) ? basename(place).replace(/\.gguf$/i, '') : place
}
