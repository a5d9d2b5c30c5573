// The responses that clients may continue or fetch again, in memory; the oldest are dropped first.
import type { ChatMessage } from '../../../index.js'
import { roughSize } from '../../../internal.js'

interface Stored {
  readonly messages: readonly ChatMessage[] // without instructions
  readonly body: object
}

const MAX_STORED = 1024
const MAX_STORED_CHARACTERS = 64 * 2 ** 20

export class ResponseStore {
  private readonly entries = new Map<string, Stored & { readonly characters: number }>() // oldest first
  private characters = 0

  get(id: string): Stored | undefined {
    return this.entries.get(id)
  }

  add(id: string, entry: Stored): void {
    const characters = roughSize(entry)
    if (characters > MAX_STORED_CHARACTERS) return
    this.entries.set(id, { ...entry, characters })
    this.characters += characters
    for (const oldest of this.entries.keys()) {
      if (this.entries.size <= MAX_STORED && this.characters <= MAX_STORED_CHARACTERS) break
      this.delete(oldest)
    }
  }

  delete(id: string): boolean {
    this.characters -= this.entries.get(id)?.characters ?? 0
    return this.entries.delete(id)
  }
}
