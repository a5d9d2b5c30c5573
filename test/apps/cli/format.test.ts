// Numbers, sizes and progress as people read them.
import { describe, expect, test } from 'vitest'
import {
  formatBytes,
  formatCsv,
  formatDuration,
  formatFields,
  formatInteger,
  formatTable,
} from '#moeflux/apps/cli/format.js'
import { ProgressBar, renderProgress } from '#moeflux/apps/cli/progressBar.js'
import { OptionError } from '#moeflux/base/errors.js'
import { parseByteSize } from '#moeflux/base/quantities.js'

describe('numbers for people', () => {
  test('writes bytes with three digits that matter', () => {
    expect([0, 999, 1000, 1_769_472, 999_999, 217_432_719_360].map(formatBytes)).toEqual([
      '0 B',
      '999 B',
      '1.00 kB',
      '1.77 MB',
      '1.00 MB',
      '217 GB',
    ])
  })

  test('writes durations and integers', () => {
    expect([0.04, 9.96, 59.6, 192, 3840, Number.POSITIVE_INFINITY].map(formatDuration)).toEqual([
      '0.0 s',
      '10 s',
      '1m 00s',
      '3m 12s',
      '1h 04m',
      '?',
    ])
    expect(formatInteger(18_119_393_280)).toBe('18,119,393,280')
  })

  test('writes values for spreadsheets, quoted where they must be', () => {
    const rows = [
      { name: 'a, "b"', count: 0.5, none: null },
      { name: 'c', count: 1e21, none: null },
    ]
    expect(formatCsv(rows)).toBe('name,count,none\n"a, ""b""",0.5,\nc,1e+21,\n')
    expect(formatCsv([])).toBe('\n')
  })

  test('aligns tables and leaves no trailing blanks', () => {
    const table = formatTable(
      [{ title: 'name' }, { title: 'size', align: 'right' }, { title: 'note' }],
      [
        ['a', '1 B', ''],
        ['longer', '10 MB', 'x'],
      ],
    )
    expect(table).toBe('name     size  note\na         1 B\nlonger  10 MB  x\n')
  })
})

describe('sizes as people write them', () => {
  test('tells decimal from binary units', () => {
    expect(parseByteSize('6GB', 'x')).toBe(6e9)
    expect(parseByteSize('6GiB', 'x')).toBe(6 * 2 ** 30)
    expect(parseByteSize('1.5 mib', 'x')).toBe(1.5 * 2 ** 20)
    expect(parseByteSize('4096', 'x')).toBe(4096)
    expect(parseByteSize(4096, 'x')).toBe(4096)
  })

  test.each(['', 'GB', '-1', '6 apples', '1e3', '0x10', 'NaN', '99999999TB', Number.NaN, -5])('refuses %j', value => {
    expect(() => parseByteSize(value, 'expertMemory')).toThrow(OptionError)
  })
})

describe('progress bar', () => {
  const update = { phase: 'converting', loaded: 500_000_000, total: 2_000_000_000 }

  test('shows share, amount, rate and time left', () => {
    const line = renderProgress(update, 100_000_000, 'bytes', 120)
    expect(line).toContain('25%')
    expect(line).toContain('500 MB of 2.00 GB')
    expect(line).toContain('100 MB/s')
    expect(line).toContain('15 s left')
  })

  test('never fills a window of any width', () => {
    for (let columns = 1; columns < 130; columns++) {
      expect(renderProgress(update, 12_345_678, 'bytes', columns).length).toBeLessThanOrEqual(Math.max(1, columns - 1))
    }
  })

  test('draws on a terminal only, and its line can be taken away', () => {
    const written: string[] = []
    const write = (text: string) => written.push(text)
    new ProgressBar({ isTTY: false, write }).update(update)
    expect(written).toEqual([])
    let clock = 0
    const bar = new ProgressBar({ isTTY: true, columns: 60, write }, 'bytes', () => clock)
    bar.update(update)
    clock += 200
    bar.update({ ...update, loaded: 500_000_001 })
    expect(written, 'short work shows nothing').toEqual([])
    clock += 200
    bar.update({ ...update, loaded: 600_000_000 })
    clock += 10
    bar.update({ ...update, loaded: 600_000_001 })
    expect(written).toHaveLength(1)
    bar.clear()
    expect(written.at(-1)).toBe('\r\u001b[2K')
  })

  test('fits tables and fields into a narrow window', () => {
    const columns = [{ title: 'experts in memory', align: 'right' as const }, { title: 'policy' }, { title: 'tok/s' }]
    expect(formatTable(columns, [['1.00 MB', 'lru', '12.0']], 25)).toBe(
      'experts\n     in\n memory  policy  tok/s\n1.00 MB  lru     12.0\n',
    )
    expect(formatTable(columns, [['1.00 MB', 'lru', '12.0']], 21)).toBe(
      'experts\n     in\n memory policy tok/s\n1.00 MB lru    12.0\n',
    )
    const fields = [['verdict', 'fits whole: after a first pass nothing is read']] as const
    expect(formatFields(fields, 40)).toBe('  verdict  fits whole: after a first\n           pass nothing is read\n')
  })

  test('takes what an earlier run brought for no speed of this one', () => {
    const written: string[] = []
    let clock = 0
    const bar = new ProgressBar({ isTTY: true, columns: 100, write: text => written.push(text) }, 'bytes', () => clock)
    const total = 1_000_000_000
    bar.update({ phase: 'download', loaded: 0, total, reused: 0 })
    clock += 1000
    bar.update({ phase: 'download', loaded: 500_000_000, total, reused: 500_000_000 })
    clock += 1000
    bar.update({ phase: 'download', loaded: 520_000_000, total, reused: 500_000_000 })
    expect(written.at(-1)).toMatch(/520 MB of 1\.00 GB {2}10\.0 MB\/s {2}48 s left/)
  })
})
