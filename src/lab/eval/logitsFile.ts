// A file of float32 numbers, little-endian, row after row. Written as it grows: logits of every position of a long text
// do not fit memory. A file that could not be finished is taken away.
import { type FileHandle, open, rm, stat } from 'node:fs/promises'
import { endianness } from 'node:os'
import { writing } from '../../internal.js'

export class LogitsFile {
  private constructor(
    private readonly path: string,
    private readonly file: FileHandle,
  ) {}

  static async create(path: string): Promise<LogitsFile> {
    return new LogitsFile(path, await open(path, 'w'))
  }

  /** Appends `rows` whole. */
  async write(rows: Float32Array): Promise<void> {
    let bytes = Buffer.from(rows.buffer, rows.byteOffset, rows.byteLength)
    if (endianness() === 'BE') bytes = Buffer.from(bytes).swap32()
    await writing(this.path, async () => {
      for (let at = 0; at < bytes.length; ) at += (await this.file.write(bytes, at)).bytesWritten
    })
  }

  close(): Promise<void> {
    return writing(this.path, () => this.file.close())
  }

  async discard(): Promise<void> {
    await this.file.close().catch(() => {})
    const info = await stat(this.path).catch(() => null)
    if (info?.isFile()) await rm(this.path, { force: true }) // not a device such as /dev/stdout
  }
}
