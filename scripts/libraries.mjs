// What a bundle of ours leaves where npm installs it.
import { readFileSync } from 'node:fs'

const { dependencies, optionalDependencies } = JSON.parse(
  readFileSync(new URL('../package.json', import.meta.url), 'utf8'),
)
const names = Object.keys({ ...dependencies, ...optionalDependencies })

/** For a bundler's `external`. */
export function isLibrary(id) {
  return names.some(name => id === name || id.startsWith(`${name}/`))
}
