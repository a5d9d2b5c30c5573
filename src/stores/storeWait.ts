// How long one request has waited for stores so far: what is asked of a store in several steps costs its budget once.

export class StoreWait {
  private readonly spent = new Map<object, number>()

  /** Milliseconds that were waited for this store. */
  of(store: object): number {
    return this.spent.get(store) ?? 0
  }

  add(store: object, ms: number): void {
    this.spent.set(store, this.of(store) + ms)
  }
}
