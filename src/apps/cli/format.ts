// Numbers and tables as people read them. Pure: what is written where is the terminal's business.
import stringWidth from 'fast-string-width'
import { formatBytes } from '../../base/formatBytes.js'
import type { DiskMeasurement } from '../../internal.js'

export { formatBytes, threeDigits } from '../../base/formatBytes.js'

/** '18,119,393,280'. */
export function formatInteger(value: number): string {
  return Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ',')
}

/** '0.8 s', '42 s', '3m 12s', '1h 04m'. */
export function formatDuration(seconds: number): string {
  if (!Number.isFinite(seconds)) return '?'
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`
  const whole = Math.round(seconds)
  if (whole < 60) return `${whole} s`
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${String(whole % 60).padStart(2, '0')}s`
  return `${Math.floor(whole / 3600)}h ${String(Math.floor((whole % 3600) / 60)).padStart(2, '0')}m`
}

export function formatPercent(ratio: number): string {
  return Number.isFinite(ratio) ? `${(ratio * 100).toFixed(1)}%` : '-'
}

export interface Column {
  readonly title: string
  readonly align?: 'left' | 'right'
}

/**
 * Columns two spaces apart, no trailing blanks; ends with a newline. Titles are left out when all are empty, and take several
 * lines where the table would else be wider than `width`.
 */
export function formatTable(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  width = Number.POSITIVE_INFINITY,
): string {
  const titles = columns.map(column => column.title)
  const hasTitles = titles.some(title => title !== '')
  const natural = columnWidths([titles, ...rows], columns.length)
  const isWide = natural.reduce((sum, each) => sum + each + 2, -2) > width
  const header = hasTitles ? (isWide ? stackedTitles(titles, columnWidths(rows, columns.length)) : [titles]) : []
  const lines = [...header, ...rows]
  const widths = columnWidths(lines, columns.length)
  const gap = widths.reduce((sum, each) => sum + each + 2, -2) > width ? ' ' : '  '
  const cell = (text: string, i: number) =>
    columns[i].align === 'right' ? text.padStart(widths[i]) : text.padEnd(widths[i])
  return lines
    .map(
      line =>
        `${columns
          .map((_, i) => cell(line[i] ?? '', i))
          .join(gap)
          .trimEnd()}\n`,
    )
    .join('')
}

function columnWidths(lines: readonly (readonly string[])[], columns: number): number[] {
  return Array.from({ length: columns }, (_, i) => Math.max(0, ...lines.map(line => (line[i] ?? '').length)))
}

/** Each title in as many lines as it needs to be no wider than its column's cells or its longest word; the last line is full. */
function stackedTitles(titles: readonly string[], cellWidths: readonly number[]): string[][] {
  const stacks = titles.map((title, i) => {
    const longest = Math.max(...title.split(' ').map(word => word.length))
    return wrapWords(title, Math.max(cellWidths[i], longest))
  })
  const height = Math.max(...stacks.map(stack => stack.length))
  return Array.from({ length: height }, (_, line) => stacks.map(stack => stack[line - (height - stack.length)] ?? ''))
}

/** Aligned 'name  value' lines, indented by two; values that go past `width` go on below themselves. */
export function formatFields(
  fields: readonly (readonly [name: string, value: string])[],
  width = Number.POSITIVE_INFINITY,
): string {
  const names = Math.max(0, ...fields.map(([name]) => name.length))
  const room = Math.max(LEAST_ROOM, width - names - 4)
  return fields
    .flatMap(([name, value]) =>
      wrapWords(value, room).map((line, i) => `  ${(i === 0 ? name : '').padEnd(names)}  ${line}\n`),
    )
    .join('')
}

const LEAST_ROOM = 20

/** Lines of at most `width` columns, broken at blanks; a longer word has a line of its own. Lines and indents that are there stay. */
export function wrapWords(text: string, width: number): string[] {
  return text.split('\n').flatMap(line => wrapLine(line, width))
}

/** A command line in quotes is one word: whoever copies it wants it whole. */
function wordsOf(text: string): string[] {
  const joined = text.replace(/'moeflux [^']*'/g, command => command.replaceAll(' ', '\0'))
  return joined.split(' ').map(word => word.replaceAll('\0', ' '))
}

function wrapLine(text: string, width: number): string[] {
  if (text.length <= width && stringWidth(text) <= width) return [text]
  const indent = /^ */.exec(text)?.[0] ?? ''
  const lines: string[] = []
  let line = ''
  let column = 0
  for (const word of wordsOf(text.slice(indent.length))) {
    const columns = stringWidth(word)
    const isFirst = line === ''
    if (isFirst || column + 1 + columns > width) {
      if (!isFirst) lines.push(line)
      line = indent + word
      column = indent.length + columns
    } else {
      line += ` ${word}`
      column += 1 + columns
    }
  }
  return [...lines, line]
}

/** Comma-separated values for spreadsheets and plots: a line of names, then one per row. Nothing for null. */
export function formatCsv(rows: readonly Readonly<Record<string, string | number | null>>[]): string {
  const names = Object.keys(rows[0] ?? {})
  const quoted = (value: string | number | null) => {
    const text = value === null ? '' : String(value)
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
  }
  return [names, ...rows.map(row => names.map(name => row[name]))]
    .map(line => `${line.map(quoted).join(',')}\n`)
    .join('')
}

/** What a disk gives, by how many reads are under way. */
export function diskLine(disk: DiskMeasurement): string {
  const speeds = disk.speeds.map(({ depth, bytesPerSecond }) => `${formatBytes(bytesPerSecond)}/s at depth ${depth}`)
  const how = disk.direct ? 'past the page cache' : 'through the page cache'
  return `${speeds.join(', ')} (random reads of ${formatBytes(disk.readBytes)}, ${how})`
}
