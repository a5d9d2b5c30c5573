// xgrammar ships a UMD file in a package of type `module`, which a plain import finds empty. The build copies it beside
// this file with a `.cjs` name, where `require` reads it as what it is.
import { createRequire } from 'node:module'
import type * as Xgrammar from '@mlc-ai/web-xgrammar'

export function loadXgrammar(): typeof Xgrammar {
  return createRequire(import.meta.url)('./xgrammar.cjs') as typeof Xgrammar
}
