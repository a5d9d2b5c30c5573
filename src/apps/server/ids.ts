// Identifiers as the APIs' own look: a prefix and random letters.
import { randomBytes } from 'node:crypto'

export function newId(prefix: string): string {
  return `${prefix}${randomBytes(18).toString('base64url').replace(/[-_]/g, 'x')}`
}

export function nowSeconds(): number {
  return Math.floor(Date.now() / 1000)
}
