// A directory of the local disk as a Folder. Names that would leave the folder are refused before the disk is asked.
import { realpath, stat } from 'node:fs/promises'
import { basename, dirname, join, resolve, sep } from 'node:path'
import { FormatError, ModelNotFoundError, MoefluxError, ReadError } from '../errors.js'
import type { ByteSource, Folder } from './byteSource.js'
import { openFileSource } from './fileSource.js'
import { openRegular } from './regularFile.js'
import { decodeUtf8 } from './strictJson.js'

const MAX_TEXT_BYTES = 512 * 2 ** 20 // more than any tokenizer or index has

export interface NodeFolderOptions {
  /**
   * 'inside' refuses symbolic links that lead out of the folder: for sources whose file names come from a downloaded
   * index. 'any' follows them: a user may keep the experts of a packed folder on another disk.
   */
  readonly links: 'inside' | 'any'
}

export async function openNodeFolder(path: string, options: NodeFolderOptions): Promise<Folder> {
  refuseEmptyName(path)
  const location = resolve(path)
  const info = await stat(location).catch(() => null)
  if (info === null) throw new ModelNotFoundError(location, 'no such folder')
  if (!info.isDirectory()) throw new ModelNotFoundError(location, 'is not a folder')
  return new NodeFolder(location, options.links)
}

class NodeFolder implements Folder {
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
