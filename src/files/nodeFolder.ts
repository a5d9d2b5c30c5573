// A directory of the local disk as a Folder. Names that would leave the folder are refused before the disk is asked.
import { readdir, realpath, stat } from 'node:fs/promises'
import { basename, dirname, join, resolve, sep } from 'node:path'
import { FormatError, ModelNotFoundError, MoefluxError, ReadError } from '../base/errors.js'
import { openRegular } from '../base/regularFile.js'
import { openFileSource } from './fileSource.js'
import type { ByteSource, HubDigest, ListedFolder } from './source.js'
import { decodeUtf8 } from './strictJson.js'

const DEEPEST = 8 // folders below each other: links may go round
const MAX_TEXT_BYTES = 512 * 2 ** 20 // more than any tokenizer or index has

export interface NodeFolderOptions {
  /**
   * 'inside' refuses symbolic links that lead out of the folder: for sources whose file names come from a downloaded
   * index. 'any' follows them: a user may keep the experts of a packed folder on another disk.
   */
  readonly links: 'inside' | 'any'
}

export async function openNodeFolder(path: string, options: NodeFolderOptions): Promise<ListedFolder> {
  refuseEmptyName(path)
  const location = resolve(path)
  const info = await stat(location).catch(() => null)
  if (info === null) throw new ModelNotFoundError(location, 'no such folder')
  if (!info.isDirectory()) throw new ModelNotFoundError(location, 'is not a folder')
  return new NodeFolder(location, options.links)
}

class NodeFolder implements ListedFolder {
  constructor(
    readonly location: string,
    private readonly links: 'inside' | 'any',
  ) {}

  async readText(name: string): Promise<string | null> {
    const path = await this.locate(name)
    let bytes: Uint8Array
    try {
      const handle = await openRegular(path)
      try {
        const { size } = await handle.stat()
        if (size > MAX_TEXT_BYTES) {
          throw new FormatError('TEXT_TOO_LARGE', path, `${size} bytes, want at most ${MAX_TEXT_BYTES}`)
        }
        bytes = await handle.readFile()
      } finally {
        await handle.close()
      }
    } catch (cause) {
      const { code } = cause as NodeJS.ErrnoException
      if (code === 'ENOENT') return null
      if (cause instanceof MoefluxError) throw cause
      throw new ReadError(path, 0, 0, `the read failed with ${code}`, { cause })
    }
    return decodeUtf8(bytes, path)
  }

  async open(name: string): Promise<ByteSource> {
    return openFileSource(await this.locate(name))
  }

  async list(): Promise<string[]> {
    const names: string[] = []
    const walk = async (below: string, depth: number): Promise<void> => {
      for (const entry of await readdir(join(this.location, below))) {
        const name = below === '' ? entry : `${below}/${entry}`
        const info = await stat(join(this.location, name)).catch(() => null)
        if (info?.isDirectory() && depth < DEEPEST) await walk(name, depth + 1)
        else names.push(name)
      }
    }
    await walk('', 0)
    return names.sort()
  }

  async sizeOf(name: string): Promise<number> {
    const info = await stat(await this.locate(name)).catch(() => null)
    return info?.isFile() ? info.size : 0
  }

  /** Files of a snapshot are links to blobs that are named after what they hold. */
  async hubDigest(name: string): Promise<HubDigest | null> {
    const real = await realpath(join(this.location, name)).catch(() => null)
    const blobs = join(dirname(dirname(await realpath(this.location))), 'blobs')
    if (real === null || dirname(real) !== blobs) return null
    const hex = basename(real)
    if (/^[0-9a-f]{64}$/.test(hex)) return { kind: 'sha256', hex }
    return /^[0-9a-f]{40}$/.test(hex) ? { kind: 'git', hex } : null
  }

  private async locate(name: string): Promise<string> {
    checkName(name, this.location)
    const path = join(this.location, name)
    if (this.links === 'inside') {
      const real = await realpath(path).catch(() => null) // a missing file is reported by who opens it
      if (real !== null && !(await this.allowedRoots()).some(root => real.startsWith(root + sep))) {
        throw new FormatError('LINK_OUTSIDE_FOLDER', path, `is a symbolic link out of the folder, to ${real}`)
      }
    }
    return path
  }

  /** The folder itself; and where it is a snapshot in the hub's cache, the blobs beside it that its links point to. */
  private async allowedRoots(): Promise<string[]> {
    const root = await realpath(this.location)
    const snapshots = dirname(root)
    return basename(snapshots) === 'snapshots' ? [root, join(dirname(snapshots), 'blobs')] : [root]
  }
}

/** An empty name, as of a variable that is not set, would resolve to the current folder. */
export function refuseEmptyName(nameOrFolder: string): void {
  if (nameOrFolder === '') throw new ModelNotFoundError("''", 'an empty name is no model')
}

/** Relative, with `/` between its parts, and none of them `..`: whatever the system, such a name stays inside. */
export function checkName(name: string, folder: string): void {
  const parts = name.split('/')
  const bad =
    name === '' ||
    /^[a-zA-Z]:/.test(name) ||
    name.includes('\\') ||
    name.includes('\0') ||
    parts.some(part => part === '' || part === '.' || part === '..')
  if (bad)
    throw new FormatError('BAD_FILE_NAME', folder, `the name ${JSON.stringify(name)} does not stay in the folder`)
}
