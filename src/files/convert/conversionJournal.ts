// Which large files a conversion has finished so far, kept in its target folder, so that a later run goes on from there. A
// file is entered once it is on the disk under its name, with the checksums of its blocks, which are written to files of
// their own at the end; the journal goes when moeflux.json, the last file, is there.
import { FormatError } from '../../base/errors.js'
import type { FileChecksum } from '../packed/manifest.js'
import { isPackedName, JOURNAL_NAME } from '../packed/packedNames.js'
import { asCount, asObject, asString, parseStrictJson } from '../strictJson.js'
import type { OutputFolder } from './outputFolder.js'

export interface FinishedFile extends FileChecksum {
  readonly sums: BigUint64Array // [blocks]
}

export class ConversionJournal {
  /** `key` stands for the source and the options: files of another key are of no use. */
  private constructor(
    private readonly output: OutputFolder,
    private readonly key: string,
    private readonly files: Map<string, FinishedFile>,
    private readonly useless: readonly string[],
    readonly uselessBytes: number,
  ) {}

  /** Finds what an earlier run of the same key left in `names`. Writes and removes nothing yet. */
  static async open(output: OutputFolder, key: string, names: readonly string[]): Promise<ConversionJournal> {
    const earlier = parseJournal(await output.readText(JOURNAL_NAME), output.location)
    const files = new Map<string, FinishedFile>()
    const useless: string[] = []
    let uselessBytes = 0
    for (const name of names.filter(isPackedName)) {
      const checksum = earlier?.key === key ? earlier.files.get(name) : undefined
      const size = (await output.sizeOf(name)) ?? 0
      if (size === checksum?.size) files.set(name, checksum)
      else {
        useless.push(name)
        uselessBytes += size
      }
    }
    return new ConversionJournal(output, key, files, useless, uselessBytes)
  }

  /** Removes what is of no use. From here on the folder is one of an unfinished conversion. */
  async start(): Promise<void> {
    for (const name of this.useless) await this.output.remove(name)
    await this.save()
  }

  get isEmpty(): boolean {
    return this.files.size === 0
  }

  get(name: string): FinishedFile | undefined {
    return this.files.get(name)
  }

  async add(name: string, file: FinishedFile): Promise<void> {
    this.files.set(name, file)
    await this.save()
  }

  close(): Promise<void> {
    return this.output.remove(JOURNAL_NAME)
  }

  /** Removes all that was written. */
  async discard(): Promise<void> {
    for (const name of this.files.keys()) await this.output.remove(name)
    this.files.clear()
    await this.close()
  }

  private async save(): Promise<void> {
    const file = await this.output.create(JOURNAL_NAME)
    try {
      const entries = [...this.files].map(([name, { size, sha256, sums }]) => [
        name,
        { size, sha256, sums: toHex(sums) },
      ])
      const text = JSON.stringify({ key: this.key, files: Object.fromEntries(entries) })
      await file.append(new TextEncoder().encode(text))
      await file.finish()
    } catch (error) {
      await file.discard()
      throw error
    }
  }
}

/** A journal that cannot be read is worth nothing, and no reason to stop. */
function parseJournal(text: string | null, where: string): { key: string; files: Map<string, FinishedFile> } | null {
  if (text === null) return null
  try {
    const root = asObject(parseStrictJson(text, where), where, 'the journal')
    const files = new Map<string, FinishedFile>()
    for (const [name, value] of asObject(root.get('files'), where, 'files')) {
      const fields = asObject(value, where, name)
      files.set(name, {
        size: asCount(fields.get('size'), where, 'size'),
        sha256: asString(fields.get('sha256'), where, 'sha256'),
        sums: fromHex(asString(fields.get('sums'), where, 'sums'), where),
      })
    }
    return { key: asString(root.get('key'), where, 'key'), files }
  } catch {
    return null
  }
}

function toHex(sums: BigUint64Array): string {
  return Array.from(sums, sum => sum.toString(16).padStart(16, '0')).join('')
}

function fromHex(text: string, where: string): BigUint64Array {
  if (!/^([0-9a-f]{16})*$/.test(text)) throw new FormatError('BAD_FIELD', where, 'sums are not numbers of 16 digits')
  return BigUint64Array.from({ length: text.length / 16 }, (_, i) => BigInt(`0x${text.slice(i * 16, (i + 1) * 16)}`))
}
