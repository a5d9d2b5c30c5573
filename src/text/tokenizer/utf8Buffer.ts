// The bytes of one word at a time, in memory that is used again for the next.
import { TokenizerError } from '../../base/errors.js'
import { bytesOfCharacters } from './byteCharacters.js'

const KEPT_BYTES = 2 ** 16

export class Utf8Buffer {
  bytes: Uint8Array = new Uint8Array(256)
  length = 0

  /** A lone surrogate is written as U+FFFD, as everywhere. */
  setText(text: string): void {
    this.reserve(3 * text.length)
    const { bytes } = this
    let end = 0
    for (let i = 0; i < text.length; i++) {
      let code = text.charCodeAt(i)
      if (code < 0x80) {
        bytes[end++] = code
        continue
      }
      if (code >= 0xd800 && code < 0xe000) {
        const pair = text.codePointAt(i)!
        if (code < 0xdc00 && pair > 0xffff) {
          code = pair
          i++
        } else code = 0xfffd
      }
      if (code < 0x800) bytes[end++] = 0xc0 | (code >> 6)
      else {
        if (code < 0x10000) bytes[end++] = 0xe0 | (code >> 12)
        else {
          bytes[end++] = 0xf0 | (code >> 18)
          bytes[end++] = 0x80 | ((code >> 12) & 0x3f)
        }
        bytes[end++] = 0x80 | ((code >> 6) & 0x3f)
      }
      bytes[end++] = 0x80 | (code & 0x3f)
    }
    this.length = end
  }

  setByteCharacters(text: string): void {
    const bytes = bytesOfCharacters(text)
    if (bytes === null) {
      throw new TokenizerError(`tokenizer.json: the pre-tokenizer gave '${text.slice(0, 40)}', which is not bytes`)
    }
    this.bytes = bytes
    this.length = bytes.length
  }

  private reserve(size: number): void {
    if (this.bytes.length < size || this.bytes.length > Math.max(KEPT_BYTES, size)) {
      this.bytes = new Uint8Array(Math.max(256, size))
    }
  }
}
