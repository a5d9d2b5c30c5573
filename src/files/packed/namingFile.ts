// Tables of tensors are checked by code that knows nothing of files (src/model). Here its errors get the name of the file
// that the table stands in.
import { TensorError } from '../../base/errors.js'

/** Does `work`; an error about a tensor that comes out of it without a file names this one. */
export function namingFile<T>(file: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (!(error instanceof TensorError) || error.file !== null) throw error
    throw new TensorError(error.tensor, error.detail, file)
  }
}
