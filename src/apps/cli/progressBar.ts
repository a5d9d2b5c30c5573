// One line that shows how far long work is, with its rate and the time left. Drawn on stderr and only on a terminal; in
// pipes, with --quiet and in CI logs it draws nothing, so that callers never ask.
import { formatBytes, formatDuration, formatInteger, threeDigits } from './format.js'

export interface ProgressUpdate {
  readonly phase: string
  readonly loaded: number
  readonly total: number
  /** The part of `loaded` that took no time: an earlier run did it. */
  readonly reused?: number
}

export interface ProgressScreen {
  readonly isTTY?: boolean
  readonly columns?: number
  write(text: string): unknown
}

export type ProgressUnit = 'bytes' | 'tokens' | 'items'

const REDRAW_MS = 80
const APPEAR_MS = 300 // work that is over sooner shows no bar
const ERASE_LINE = '\r\u001b[2K'

export class ProgressBar {
  private readonly screen: ProgressScreen | null
  private readonly unit: ProgressUnit
  private readonly now: () => number
  private rate = new RateMeter()
  private phase = ''
  private line = ''
  private startedAt: number | null = null
  private drawnAt = Number.NEGATIVE_INFINITY

  constructor(
    screen: ProgressScreen | null,
    unit: ProgressUnit = 'bytes',
    now: () => number = () => performance.now(),
  ) {
    this.screen = screen?.isTTY ? screen : null
    this.unit = unit
    this.now = now
  }

  update(progress: ProgressUpdate): void {
    if (this.screen === null) return
    const now = this.now()
    this.startedAt ??= now
    if (progress.phase !== this.phase) {
      this.phase = progress.phase
      this.rate = new RateMeter()
      this.drawnAt = Number.NEGATIVE_INFINITY
    }
    this.rate.add(now, progress.loaded - (progress.reused ?? 0))
    if (now - this.startedAt < APPEAR_MS) return
    if (now - this.drawnAt < REDRAW_MS && progress.loaded < progress.total) return
    this.drawnAt = now
    this.line = renderProgress(progress, this.rate.perSecond, this.unit, this.screen.columns ?? 80)
    this.screen.write(ERASE_LINE + this.line)
  }

  /** Takes the line off the screen; a later update draws it again. */
  clear(): void {
    if (this.screen === null || this.line === '') return
    this.line = ''
    this.drawnAt = Number.NEGATIVE_INFINITY
    this.screen.write(ERASE_LINE)
  }
}

/** Rate over the last seconds, so that a slow start or a pause does not spoil the estimate for ever. */
class RateMeter {
  static readonly WINDOW_MS = 8000
  private samples: { at: number; loaded: number }[] = []

  add(at: number, loaded: number): void {
    const last = this.samples.at(-1)
    if (last !== undefined && loaded < last.loaded) this.samples = []
    // One sample per 100 ms is enough, and keeps the list short however often the work reports.
    if (this.samples.length > 1 && at - this.samples[this.samples.length - 2].at < 100) this.samples.pop()
    this.samples.push({ at, loaded })
    while (this.samples.length > 2 && at - this.samples[0].at > RateMeter.WINDOW_MS) this.samples.shift()
  }

  get perSecond(): number | null {
    const first = this.samples[0]
    const last = this.samples.at(-1)
    if (first === undefined || last === undefined || last.at - first.at < 200) return null
    return ((last.loaded - first.loaded) * 1000) / (last.at - first.at)
  }
}

/** One line of at most `columns - 1` characters; drops the least needed parts first in a narrow window. */
export function renderProgress(
  progress: ProgressUpdate,
  perSecond: number | null,
  unit: ProgressUnit,
  columns: number,
): string {
  const { phase, loaded, total } = progress
  const share = total > 0 ? Math.min(1, Math.max(0, loaded / total)) : 1
  const percent = `${Math.floor(share * 100)}%`.padStart(4)
  const amount = `${formatAmount(loaded, unit)} of ${formatAmount(total, unit)}`
  const rate = perSecond !== null && perSecond > 0 ? formatRate(perSecond, unit) : ''
  const left = perSecond !== null && perSecond > 0 ? `${formatDuration((total - loaded) / perSecond)} left` : ''
  const width = Math.max(1, columns - 1)
  const candidates = [
    [phase, bar(share, 24), percent, amount, rate, left],
    [phase, bar(share, 10), percent, amount, rate, left],
    [phase, percent, rate, left],
    [phase, percent, left],
    [phase, percent],
  ]
  for (const parts of candidates) {
    const line = parts.filter(part => part !== '').join('  ')
    if (line.length <= width) return line
  }
  return percent.trim().slice(0, width)
}

function bar(share: number, width: number): string {
  const full = Math.round(share * width)
  return '█'.repeat(full) + '░'.repeat(width - full)
}

function formatAmount(value: number, unit: ProgressUnit): string {
  return unit === 'bytes' ? formatBytes(value) : formatInteger(value)
}

function formatRate(perSecond: number, unit: ProgressUnit): string {
  if (unit === 'bytes') return `${formatBytes(perSecond)}/s`
  return unit === 'tokens' ? `${threeDigits(perSecond)} tok/s` : `${threeDigits(perSecond)}/s`
}
