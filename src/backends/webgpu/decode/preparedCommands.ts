// Commands that were recorded before they are wanted, while the GPU was busy with others like them, and lists that they are made
// of again: good as long as no buffer that they use was replaced. Several kinds at once, since who compares steps of one token with
// steps of several takes turns.

const MOST = 16 // kinds: the oldest goes

export class PreparedCommands<T> {
  private readonly made = new Map<string, T>()
  private readonly pools: readonly { readonly generation: number }[]
  private generation = ''

  /** `pools`: what has the buffers that may be replaced. */
  constructor(pools: readonly { readonly generation: number }[]) {
    this.pools = pools
  }

  has(kind: string): boolean {
    this.forgetOld()
    return this.made.has(kind)
  }

  put(kind: string, commands: T): void {
    this.forgetOld()
    this.made.delete(kind)
    this.made.set(kind, commands)
    const [oldest] = this.made.keys()
    if (this.made.size > MOST) this.made.delete(oldest)
  }

  take(kind: string): T | null {
    const commands = this.get(kind)
    this.made.delete(kind)
    return commands
  }

  /** To use without taking it. */
  get(kind: string): T | null {
    this.forgetOld()
    return this.made.get(kind) ?? null
  }

  private forgetOld(): void {
    const now = this.pools.map(({ generation }) => generation).join()
    if (now !== this.generation) this.made.clear()
    this.generation = now
  }
}
