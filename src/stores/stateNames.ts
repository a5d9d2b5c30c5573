// How the objects of a state are named: by a hash over the model, the scope and all tokens up to the object's end. So two
// conversations that begin alike share the pages of their beginning, and nobody finds what another model or scope wrote.
import { hex, sha256 } from '../base/sha256.js'

/** Tokens of a page of keys and values, in the store. Part of the format. */
export const STORED_PAGE_TOKENS = 128

export interface StateIdentity {
  readonly fingerprint: string // of the model
  readonly expertsPerToken: number
  readonly body: string // how keys and values are kept
  readonly scope: string // '' for all, or who alone may use it
}

/** Visible part of names: what one deployment may read of a store that several use. */
export const NAMESPACE = /^[A-Za-z0-9._-]{1,64}$/

export class StateNames {
  private readonly chain: Promise<Uint8Array>[] = [] // after 0, 1, 2 … pages

  constructor(
    private readonly namespace: string,
    identity: StateIdentity,
    private readonly tokens: readonly number[],
  ) {
    const { fingerprint, expertsPerToken, body, scope } = identity
    const text = JSON.stringify(['moeflux state', 1, fingerprint, expertsPerToken, body, STORED_PAGE_TOKENS, scope])
    this.chain.push(sha256(new TextEncoder().encode(text)))
  }

  /** Of the page that ends after `count` pages of tokens. */
  async page(count: number): Promise<string> {
    return `${this.namespace}/kv-${hex(await this.after(count))}`
  }

  /** Of what a state at `length` has beside its full pages. */
  async state(length: number): Promise<string> {
    const full = Math.floor(length / STORED_PAGE_TOKENS)
    const rest = this.tokens.slice(full * STORED_PAGE_TOKENS, length)
    return `${this.namespace}/state-${hex(await extend(await this.after(full), [...rest, STATE_MARK]))}`
  }

  private async after(pages: number): Promise<Uint8Array> {
    while (this.chain.length <= pages) {
      const start = (this.chain.length - 1) * STORED_PAGE_TOKENS
      const tokens = this.tokens.slice(start, start + STORED_PAGE_TOKENS)
      this.chain.push(this.chain[this.chain.length - 1].then(before => extend(before, tokens)))
    }
    return await this.chain[pages]
  }
}

const STATE_MARK = 0xffffffff // no token

async function extend(before: Uint8Array, tokens: readonly number[]): Promise<Uint8Array> {
  const bytes = new Uint8Array(before.length + 4 * tokens.length)
  bytes.set(before)
  bytes.set(new Uint8Array(Uint32Array.from(tokens).buffer), before.length)
  return await sha256(bytes)
}
