// A growing list of token ids: one number costs four bytes, and the whole can be handed to another thread at no cost.

export class IdList {
  length = 0
  private values = new Int32Array(256)

  push(id: number): void {
    if (this.length === this.values.length) this.grow(this.length + 1)
    this.values[this.length++] = id
  }

  pushAll(ids: readonly number[]): void {
    if (this.length + ids.length > this.values.length) this.grow(this.length + ids.length)
    for (let i = 0; i < ids.length; i++) this.values[this.length++] = ids[i]
  }

  /** The ids, in memory that nobody else has. */
  take(): Int32Array {
    return this.values.slice(0, this.length)
  }

  private grow(needed: number): void {
    const grown = new Int32Array(Math.max(needed, 2 * this.values.length))
    grown.set(this.values)
    this.values = grown
  }
}
