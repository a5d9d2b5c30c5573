// A prefix store in a Map that counts, and that can be told to fail, hang or lie at any call.
import type { PrefixStore } from '#moeflux/stores/prefixStore.js'

export class MemoryStore implements PrefixStore {
  readonly location = 'memory'
  readonly objects = new Map<string, Uint8Array>()
  readonly calls: { kind: 'has' | 'get' | 'put' | 'remove'; names: readonly string[] }[] = []
  /** Called before each call with its number and kind; may throw, or wait. */
  before: (call: number, kind: string) => void | Promise<void> = () => {}
  closed = false

  async has(names: readonly string[]): Promise<boolean[]> {
    await this.begin('has', names)
    return names.map(name => this.objects.has(name))
  }

  async get(names: readonly string[]): Promise<(Uint8Array | null)[]> {
    await this.begin('get', names)
    return names.map(name => this.objects.get(name)?.slice() ?? null)
  }

  async put(name: string, bytes: Uint8Array): Promise<void> {
    await this.begin('put', [name])
    this.objects.set(name, bytes.slice())
  }

  async remove(name: string): Promise<void> {
    await this.begin('remove', [name])
    this.objects.delete(name)
  }

  async close(): Promise<void> {
    this.closed = true
  }

  count(kind: string): number {
    return this.calls.filter(call => call.kind === kind).length
  }

  private async begin(kind: 'has' | 'get' | 'put' | 'remove', names: readonly string[]): Promise<void> {
    const call = this.calls.push({ kind, names }) - 1
    await this.before(call, kind)
  }
}

export const never = () => new Promise<void>(() => {})
