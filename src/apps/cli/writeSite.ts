// A folder that any static web host can serve: the web UI, and models that it runs in the visitor's tab. Files of a model
// are those of its manifest, compared by size; the list of models is written last, so that no page finds a half-made one.
import { cp, mkdir, stat, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { FormatError, ModelNotFoundError } from '../../base/errors.js'
import { openRegular } from '../../base/regularFile.js'
import {
  distinctEntries,
  isPackedName,
  METADATA_NAME,
  type ModelEntry,
  makeFolder,
  modelEntry,
  openNodeFolder,
  readMetadata,
  type SiteIndex,
  writing,
} from '../../internal.js'

export interface WriteSiteOptions {
  readonly signal?: AbortSignal
  readonly onProgress?: (progress: { phase: string; loaded: number; total: number }) => void
}

/** `models`: packed folders. */
export async function writeSite(
  webFolder: string,
  models: readonly string[],
  target: string,
  options: WriteSiteOptions = {},
): Promise<SiteIndex> {
  const { signal, onProgress } = options
  const planned = await Promise.all([...new Set(models.map(path => resolve(path)))].map(planModel))
  const entries = distinctEntries(planned.map(({ entry }) => entry))
  const plans = planned.map((plan, index) => ({ ...plan, entry: entries[index] }))
  const total = plans.reduce((sum, { files }) => sum + files.reduce((bytes, { size }) => bytes + size, 0), 0)
  let loaded = 0
  await makeFolder(target)
  await writing(target, () => cp(webFolder, target, { recursive: true }))
  for (const { folder, entry, files } of plans) {
    for (const { name, size } of files) {
      signal?.throwIfAborted()
      const to = join(target, 'models', entry.path, name)
      await mkdir(dirname(to), { recursive: true })
      await (await openRegular(join(folder, name))).close() // anything else would be copied as what it is
      await writing(to, () => cp(join(folder, name), to, { dereference: true }))
      const copied = (await stat(to)).size
      if (copied !== size) throw new FormatError('WRONG_SIZE', join(folder, name), `${copied} bytes, want ${size}`)
      loaded += size
      onProgress?.({ phase: `copying ${entry.name}`, loaded, total })
    }
  }
  const index: SiteIndex = { models: entries }
  await mkdir(join(target, 'models'), { recursive: true })
  const list = join(target, 'models/index.json')
  await writing(list, () => writeFile(list, `${JSON.stringify(index, null, 2)}\n`))
  return index
}

interface ModelPlan {
  readonly folder: string
  readonly entry: ModelEntry
  readonly files: readonly { readonly name: string; readonly size: number }[]
}

async function planModel(path: string): Promise<ModelPlan> {
  const folder = await openNodeFolder(path, { links: 'any' })
  const metadata = await readMetadata(folder)
  if (metadata === null) throw new ModelNotFoundError(path, `has no ${METADATA_NAME}: pack it with moeflux convert`)
  // The 2-bit experts are a choice of the command line; a page uses the model's own.
  const files = [...metadata.files]
    .filter(([name]) => isPackedName(name) && !name.startsWith('packed_experts_2bit'))
    .map(([name, { size }]) => ({ name, size }))
  const { size } = await stat(join(folder.location, METADATA_NAME))
  files.push({ name: METADATA_NAME, size })
  return { folder: folder.location, entry: modelEntry(metadata.model, metadata), files }
}
