// Which pages of K/V memory hold which tokens of which sequence. A page has room for `pageTokens` rows of every
// full-attention layer and is known by a number; what memory lies behind it is the backend's business. Pages are shared
// between sequences and held states by counting holders; one that others hold too is copied before it is written.

/** Rows of keys and values that are one page, on every backend: attention goes page by page, so that its sums are cut at absolute
 * positions. The kernel of wasm (attention.as.ts) has the number as PAGE.
 */
export const PAGE_TOKENS = 64

/** The memory behind page numbers. */
export interface PageMemory {
  /** Called before the page is used; may throw, and then nothing has changed. */
  allocate(page: number): void
  /** Copies the first `rows` token rows of every layer. */
  copy(from: number, to: number, rows: number): void
  free(page: number): void
}

export class PagePool {
  private readonly holders: number[] = [] // by page; 0: free
  private readonly unused: number[] = []

  constructor(
    readonly pageTokens: number,
    private readonly memory: PageMemory,
  ) {}

  get pagesInUse(): number {
    return this.holders.length - this.unused.length
  }

  holdersOf(page: number): number {
    return this.holders[page]
  }

  allocate(): number {
    const page = this.unused.at(-1) ?? this.holders.length
    this.memory.allocate(page)
    if (page === this.holders.length) this.holders.push(1)
    else {
      this.unused.pop()
      this.holders[page] = 1
    }
    return page
  }

  /** A page of one's own with the first `rows` rows of `page`, whose hold is given up. */
  copy(page: number, rows: number): number {
    const own = this.allocate()
    try {
      this.memory.copy(page, own, rows)
    } catch (error) {
      this.release(own)
      throw error
    }
    this.release(page)
    return own
  }

  retain(page: number): void {
    this.holders[page]++
  }

  release(page: number): void {
    if (--this.holders[page] > 0) return
    this.unused.push(page)
    this.memory.free(page)
  }
}

/** The pages of one sequence or held state, in order: token t is row t % pageTokens of page t / pageTokens. */
export class PageTable {
  private readonly list: number[] = []

  constructor(private readonly pool: PagePool) {}

  get pages(): readonly number[] {
    return this.list
  }

  /** Pages that nobody else holds. */
  get ownPages(): number {
    return this.list.filter(page => this.pool.holdersOf(page) === 1).length
  }

  /**
   * Makes rows [length, length + tokens) writable: copies the page that row `length` lies in where others hold it too,
   * and adds pages. The rows before `length` stay as they are, so a step that fails after this has changed nothing.
   */
  reserve(length: number, tokens: number): void {
    const { pageTokens } = this.pool
    this.trim(length)
    const rows = length % pageTokens
    const last = this.list.length - 1
    if (rows > 0 && this.pool.holdersOf(this.list[last]) > 1) this.list[last] = this.pool.copy(this.list[last], rows)
    const needed = Math.ceil((length + tokens) / pageTokens)
    while (this.list.length < needed) this.list.push(this.pool.allocate())
  }

  /** The next page, which was allocated for this table before its rows were asked for. */
  add(page: number): void {
    this.list.push(page)
  }

  /** Gives up pages that hold nothing before row `length`. */
  trim(length: number): void {
    const needed = Math.ceil(length / this.pool.pageTokens)
    while (this.list.length > needed) this.pool.release(this.list.pop() as number)
  }

  /** Another table of the same pages. */
  share(): PageTable {
    const other = new PageTable(this.pool)
    for (const page of this.list) {
      this.pool.retain(page)
      other.list.push(page)
    }
    return other
  }

  /** Gives up every page. */
  release(): void {
    this.trim(0)
  }
}

/** The parts of pages that rows [start, start + rows) lie in; `first`: row in the page, `done`: rows before the part. */
export function eachPagePart(
  pageTokens: number,
  start: number,
  rows: number,
  use: (page: number, first: number, count: number, done: number) => void,
): void {
  for (let done = 0; done < rows; ) {
    const first = (start + done) % pageTokens
    const count = Math.min(pageTokens - first, rows - done)
    use(Math.floor((start + done) / pageTokens), first, count, done)
    done += count
  }
}
