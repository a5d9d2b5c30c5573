// The built-in model: a small story teller that the build packs beside the compiled code.
import { fileURLToPath } from 'node:url'

export function demoModelPath(): string {
  return fileURLToPath(new URL('../../demo-model', import.meta.url))
}
