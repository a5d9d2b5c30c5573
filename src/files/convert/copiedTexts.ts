// The small files that a pack has from its source as they are. People edit them (a chat template, the tokens that end an
// answer) long after the weights were packed, so they are compared each time, by all of their text, and copied again
// alone. Compares; who writes is elsewhere.
import { createHash } from 'node:crypto'
import type { Metadata } from '../packed/manifest.js'
import { COPIED_NAMES } from '../packed/packedNames.js'
import type { Folder } from '../source.js'

/** Where the pack has something else than its source, or its checksums do: the source's text, null where it has none. */
export async function changedTexts(
  source: Pick<Folder, 'readText'>,
  packed: Pick<Folder, 'readText'>,
  metadata: Metadata,
): Promise<Map<string, string | null>> {
  const changed = new Map<string, string | null>()
  for (const name of COPIED_NAMES) {
    const text = await source.readText(name)
    const checksum = text === null ? undefined : createHash('sha256').update(text).digest('hex')
    // A refresh that was cut off leaves a new file with an old checksum.
    const same = checksum === metadata.files.get(name)?.sha256 && text === (await packed.readText(name))
    if (!same) changed.set(name, text)
  }
  return changed
}
