// The families that run. A new one is a file beside this one and a line here.
import { UnsupportedModelError } from '../../base/errors.js'
import type { Family } from './family.js'
import { glm4_moe } from './glm4_moe.js'
import { gpt_oss } from './gpt_oss.js'
import { qwen3_5 } from './qwen3_5.js'
import { qwen3_5_moe } from './qwen3_5_moe.js'
import { qwen3_moe } from './qwen3_moe.js'
import { qwen3_next } from './qwen3_next.js'

export const families: readonly Family[] = [qwen3_5_moe, qwen3_5, qwen3_moe, qwen3_next, glm4_moe, gpt_oss]

/** The family of a `model_type`; others are refused with the list of those that run. */
export function familyOf(modelType: unknown, field = 'model_type'): Family {
  const found = families.find(({ modelTypes }) => modelTypes.includes(modelType as string))
  if (found !== undefined) return found
  const known = families.flatMap(({ modelTypes }) => modelTypes).join(', ')
  throw new UnsupportedModelError(field, modelType, `one of ${known}`)
}

/** The family of a GGUF file's `general.architecture`, or undefined. */
export function familyOfArchitecture(architecture: unknown): Family | undefined {
  return families.find(({ gguf }) => gguf.architecture === architecture)
}

/** The family that a config was read by. */
export function familyNamed(name: string): Family {
  return families.find(family => family.name === name)!
}
