// Page tables against the plain idea of them: every table is an array of rows of its own.

import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { PagePool, PageTable } from '#moeflux/backends/kvPages.js'

const PAGE_TOKENS = 4

class Memory {
  readonly pages = new Map<number, number[]>()
  copies = 0
  failing = false

  allocate(page: number) {
    if (this.failing) throw new Error('no memory')
    if (this.pages.has(page)) throw new Error(`page ${page} is in use`)
    this.pages.set(page, new Array(PAGE_TOKENS).fill(Number.NaN))
  }

  copy(from: number, to: number, rows: number) {
    this.copies++
    for (let row = 0; row < rows; row++) this.rows(to)[row] = this.rows(from)[row]
  }

  free(page: number) {
    this.pages.delete(page)
  }

  rows(page: number): number[] {
    const rows = this.pages.get(page)
    if (!rows) throw new Error(`page ${page} is free`)
    return rows
  }
}

function read(memory: Memory, table: PageTable, length: number): number[] {
  return table.pages.flatMap(page => memory.rows(page)).slice(0, length)
}

function append(memory: Memory, table: PageTable, length: number, values: readonly number[]) {
  table.reserve(length, values.length)
  values.forEach((value, i) => {
    const row = length + i
    memory.rows(table.pages[Math.floor(row / PAGE_TOKENS)])[row % PAGE_TOKENS] = value
  })
}

describe('K/V pages', () => {
  test('sharing, appending and truncating never shows through to another table', () => {
    const operation = fc.oneof(
      fc.record({ kind: fc.constant('append' as const), at: fc.nat(9), count: fc.integer({ min: 1, max: 9 }) }),
      fc.record({ kind: fc.constant('fail' as const), at: fc.nat(9), count: fc.integer({ min: 1, max: 9 }) }),
      fc.record({ kind: fc.constant('share' as const), at: fc.nat(9), count: fc.constant(0) }),
      fc.record({ kind: fc.constant('release' as const), at: fc.nat(9), count: fc.constant(0) }),
      fc.record({ kind: fc.constant('cut' as const), at: fc.nat(9), count: fc.nat(20) }),
    )
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 60 }), operations => {
        const memory = new Memory()
        const pool = new PagePool(PAGE_TOKENS, memory)
        const tables = [{ table: new PageTable(pool), rows: [] as number[] }]
        let next = 0
        for (const { kind, at, count } of operations) {
          const target = tables[at % tables.length]
          const values = Array.from({ length: count }, () => next++)
          if (kind === 'append') {
            append(memory, target.table, target.rows.length, values)
            target.rows.push(...values)
          } else if (kind === 'fail') {
            // A step that wrote its rows and then did not commit them.
            append(memory, target.table, target.rows.length, values)
            target.table.trim(target.rows.length)
          } else if (kind === 'share') {
            tables.push({ table: target.table.share(), rows: [...target.rows] })
          } else if (kind === 'cut') {
            target.rows.length = Math.min(count, target.rows.length)
            target.table.trim(target.rows.length)
          } else {
            target.table.release()
            target.rows.length = 0
          }
          for (const { table, rows } of tables) expect(read(memory, table, rows.length)).toEqual(rows)
          expect(pool.pagesInUse).toBe(memory.pages.size)
        }
        for (const { table } of tables) table.release()
        expect(memory.pages.size).toBe(0)
      }),
      { numRuns: 200 },
    )
  })

  test('only the newest page is copied, and only where someone else holds it', () => {
    const memory = new Memory()
    const table = new PageTable(new PagePool(PAGE_TOKENS, memory))
    append(memory, table, 0, [1, 2, 3, 4, 5, 6])
    const held = table.share()
    append(memory, table, 6, [7])
    append(memory, table, 7, [8, 9])
    expect(memory.copies).toBe(1)
    expect([memory.pages.size, held.ownPages, table.ownPages]).toEqual([4, 1, 2])
    held.release()
    expect(memory.pages.size).toBe(3)
  })

  test('memory that runs out leaves the table as it was', () => {
    const memory = new Memory()
    const table = new PageTable(new PagePool(PAGE_TOKENS, memory))
    append(memory, table, 0, [1, 2])
    const held = table.share()
    memory.failing = true
    expect(() => table.reserve(2, 1)).toThrow('no memory')
    memory.failing = false
    expect(read(memory, table, 2)).toEqual([1, 2])
    append(memory, table, 2, [3])
    expect(read(memory, table, 3)).toEqual([1, 2, 3])
    expect(read(memory, held, 2)).toEqual([1, 2])
  })
})
