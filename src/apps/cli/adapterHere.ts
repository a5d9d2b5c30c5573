// Whether this machine has a GPU that moeflux uses: asked once, in a process of its own, and kept in the store's `adapter.json`
// until drivers, Node or Dawn change. A user at a terminal is told once that no GPU is used, which that file remembers, too.
import { mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { readRegular } from '../../base/regularFile.js'
import { type AdapterProbe, driverKey, probeAdaptersApart, quietDrivers, storeRoot } from '../../internal.js'
import type { Cli } from './action.js'

interface KnownAdapter {
  readonly key: string
  readonly usable: boolean
  readonly isSoftware: boolean // there is one, for those who ask for it
  readonly reason: string
  readonly isTold: boolean // the user was told that no GPU is used
}

let key: Promise<string> | null = null // of this process: quietDrivers changes its environment

/** Why the webgpu backend cannot be opened; null: it may be tried. */
export async function reasonAgainstGpu(cli: Cli, backend: 'auto' | 'webgpu'): Promise<string | null> {
  const kept = await readKept()
  const mayOpen = ({ usable, isSoftware }: KnownAdapter) => usable || (isSoftware && backend === 'webgpu')
  // Who asks for a GPU by name may just have changed something that the key does not show.
  let known = kept !== null && (backend === 'auto' || mayOpen(kept)) ? kept : null
  if (known === null) {
    const probe = await probeAdaptersApart(cli.signal)
    known = await knownOf(probe, false)
    if (probe.isFinal) await keep(known)
  }
  if (backend === 'auto' && !known.usable && !known.isTold && process.stderr.isTTY && !cli.quiet) {
    cli.notice(cli.dim(`computing without a GPU: ${known.reason}; 'moeflux doctor' says more`))
    await keep({ ...known, isTold: true })
  }
  if (known.usable) quietDrivers()
  return mayOpen(known) ? null : known.reason
}

/** Asks anew and keeps the answer: what `doctor` shows is known to the user. */
export async function askForAdapter(signal: AbortSignal): Promise<AdapterProbe> {
  const probe = await probeAdaptersApart(signal)
  if (probe.isFinal) await keep(await knownOf(probe, true))
  return probe
}

async function knownOf({ usable, reason, adapter }: AdapterProbe, isTold: boolean): Promise<KnownAdapter> {
  return { key: await ownKey(), usable, isSoftware: adapter?.software === true, reason, isTold }
}

/** For a GPU that could not be opened although it was found. */
export async function forgetAdapter(): Promise<void> {
  await rm(keptFile(), { force: true }).catch(() => {})
}

function ownKey(): Promise<string> {
  key ??= driverKey()
  return key
}

function keptFile(): string {
  return join(storeRoot(), 'adapter.json')
}

async function readKept(): Promise<KnownAdapter | null> {
  try {
    const kept = JSON.parse((await readRegular(keptFile())).toString('utf8')) as KnownAdapter
    return kept.key === (await ownKey()) && typeof kept.reason === 'string' ? kept : null
  } catch {
    return null
  }
}

/** Optional: in a store that cannot be written, each start asks. */
async function keep(known: KnownAdapter): Promise<void> {
  const fresh = `${keptFile()}.${process.pid}`
  try {
    await mkdir(storeRoot(), { recursive: true })
    await writeFile(fresh, `${JSON.stringify(known)}\n`)
    await rename(fresh, keptFile())
  } catch {}
}
