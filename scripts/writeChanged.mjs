import { existsSync, readFileSync, writeFileSync } from 'node:fs'

/** Leaves a file as old as its content, for the steps that look at it. */
export function writeChanged(file, text) {
  if (!existsSync(file) || readFileSync(file, 'utf8') !== text) writeFileSync(file, text)
}
