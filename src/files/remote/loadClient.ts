// Clients of stores are optional packages, loaded when a URL asks for one.
import { UsageError } from '../../base/errors.js'

export async function loadClient<T>(name: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load()
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException
    if (code !== 'ERR_MODULE_NOT_FOUND' && code !== 'MODULE_NOT_FOUND') throw cause
    throw new UsageError(`the package ${name} is not installed, which this URL needs: npm install ${name}`)
  }
}
