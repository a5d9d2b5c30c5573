// Which dialect a model speaks. Its chat template shows the syntax that it was trained on, and is believed; a family names
// its dialect for models whose template shows none.
import type { DialectName } from '../../model/families/family.js'
import type { Dialect } from './dialect.js'
import { glm4 } from './glm4.js'
import { harmony } from './harmony.js'
import { hermes } from './hermes.js'
import { qwen3_5 } from './qwen3_5.js'
import { qwen3_coder } from './qwen3_coder.js'

export const DIALECTS: readonly Dialect[] = [harmony, glm4, qwen3_5, qwen3_coder, hermes]

export function findDialect(chatTemplate: string | null, named: DialectName = 'hermes'): Dialect {
  const spoken = chatTemplate === null ? undefined : DIALECTS.find(dialect => dialect.isSpokenBy(chatTemplate))
  return spoken ?? DIALECTS.find(({ name }) => name === named) ?? hermes
}
