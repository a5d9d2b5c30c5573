// How many experts are kept in memory. Pure: what the user asked for and what the machine has in, a number of slots out.
import { OptionError } from '../../errors.js'

/** The part of free memory that experts take when nobody says how much. */
const FREE_SHARE = 0.6

export interface BudgetFacts {
  readonly slotBytes: number // of one expert in memory
  readonly experts: number // of all layers
  readonly expertsPerToken: number
  readonly expertMemory: number | undefined // asked for
  readonly freeBytes: number // beside the resident part
}

export interface ExpertBudget {
  readonly slots: number
  /** For people, when it was the machine's size that decided. */
  readonly notice: string | null
}

export function chooseExpertSlots(facts: BudgetFacts): ExpertBudget {
  const least = Math.min(facts.experts, 2 * facts.expertsPerToken)
  if (facts.expertMemory !== undefined) {
    const slots = Math.floor(facts.expertMemory / facts.slotBytes)
    if (slots < least) {
      const want = `at least ${least * facts.slotBytes} bytes (${least} experts of ${facts.slotBytes})`
      throw new OptionError('expertMemory', facts.expertMemory, want)
    }
    return { slots: Math.min(slots, facts.experts), notice: null }
  }
  const fitting = Math.floor((Math.max(0, facts.freeBytes) * FREE_SHARE) / facts.slotBytes)
  const slots = Math.max(least, Math.min(fitting, facts.experts))
  const gigabytes = ((slots * facts.slotBytes) / 1e9).toFixed(1)
  const notice =
    slots === facts.experts
      ? null
      : `expert memory: ${gigabytes} GB, ${slots} of ${facts.experts} experts; the others are read when needed`
  return { slots, notice }
}
