// The kernels for places without shared memory. A module says whether the memory it imports is shared by one bit of its
// import section; everything else in it runs on either kind.
import { FormatError } from '../../base/errors.js'

const IMPORT_SECTION = 2
const KIND_MEMORY = 2
const FLAG_SHARED = 2

/** The same module with a plain memory in place of its shared one. */
export function unsharedKernels(module: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(module)
  let at = 8 // past magic and version
  const number = (): number => {
    let value = 0
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at++]
      value |= (byte & 127) << shift
      if (byte < 128) return value
    }
  }
  while (at < bytes.length) {
    const section = bytes[at++]
    const size = number()
    if (section !== IMPORT_SECTION) {
      at += size
      continue
    }
    number() // imports
    for (let name = 0; name < 2; name++) {
      const length = number() // of the names of module and field
      at += length
    }
    if (bytes[at++] !== KIND_MEMORY) break
    bytes[at] &= ~FLAG_SHARED
    return bytes
  }
  throw new FormatError('BAD_KERNELS', 'kernels', 'the first import is no memory')
}
