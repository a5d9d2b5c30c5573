// A file of the local disk as a ByteSource: positional reads, whole or not at all. No caching, no retries.
import type { FileHandle } from 'node:fs/promises'
import { FormatError, ReadError } from '../base/errors.js'
import { openRegular } from '../base/regularFile.js'
import type { ByteSource } from './source.js'

export async function openFileSource(path: string): Promise<ByteSource> {
  let handle: FileHandle
  try {
    handle = await openRegular(path)
  } catch (cause) {
    if (cause instanceof FormatError) throw cause
    throw new ReadError(path, 0, 0, describe(cause), { cause })
  }
  try {
    return new FileSource(path, (await handle.stat()).size, handle)
  } catch (error) {
    await handle.close()
    throw error
  }
}

class FileSource implements ByteSource {
  readonly name: string

  constructor(
    readonly path: string,
    readonly size: number,
    private readonly handle: FileHandle,
  ) {
    this.name = path
  }

  async read(offset: number, target: Uint8Array, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted()
    const wanted = target.byteLength
    if (offset < 0 || offset + wanted > this.size) {
      throw new ReadError(this.name, offset, wanted, `the read goes past the file's ${this.size} bytes`)
    }
    let done = 0
    while (done < wanted) {
      let bytesRead: number
      try {
        ;({ bytesRead } = await this.handle.read(target, done, wanted - done, offset + done))
      } catch (cause) {
        throw new ReadError(this.name, offset, wanted, describe(cause), { cause })
      }
      if (bytesRead === 0) {
        throw new ReadError(this.name, offset, wanted, `the file was cut short while open: got ${done} bytes`)
      }
      done += bytesRead
    }
    signal?.throwIfAborted()
  }

  close(): Promise<void> {
    return this.handle.close()
  }
}

/** A system error in a few words: 'no such file', else its code and message. */
function describe(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException
  if (code === 'ENOENT') return 'no such file'
  return code === undefined ? String(message ?? error) : `the read failed with ${code}`
}
