// Which experts an answer used, small enough to be kept with it: layers and experts in a few rows and columns of digits.
// Pure. Frames are of everything that the engine does meanwhile, other clients' answers too.
import type { EngineFrame } from '#moeflux/apps/browser/page.js'

const MOST_ROWS = 16
const MOST_COLUMNS = 64
const LEVELS = 9

export interface HeatStrip {
  readonly rows: number
  readonly columns: number
  readonly cells: string // a digit each, row by row: 0 unused, 9 the most used
  readonly used: number // experts
  readonly experts: number // in all layers together
}

export class HeatRecorder {
  private readonly routed: Float64Array // [layers, experts]

  constructor(private readonly shape: { readonly layers: number; readonly experts: number }) {
    this.routed = new Float64Array(shape.layers * shape.experts)
  }

  add({ routed }: Pick<EngineFrame, 'routed'>): void {
    routed.forEach((count, cell) => {
      this.routed[cell] += count
    })
  }

  /** Null where nothing was routed anywhere. */
  strip(): HeatStrip | null {
    const { layers, experts } = this.shape
    const used = this.routed.reduce((sum, count) => sum + Number(count > 0), 0)
    if (used === 0) return null
    const rows = Math.min(layers, MOST_ROWS)
    const columns = Math.min(experts, MOST_COLUMNS)
    const sums = new Float64Array(rows * columns)
    this.routed.forEach((count, cell) => {
      const row = Math.floor((Math.floor(cell / experts) * rows) / layers)
      const column = Math.floor(((cell % experts) * columns) / experts)
      sums[row * columns + column] += count
    })
    const most = Math.max(...sums)
    const level = (sum: number) => Math.ceil((sum / most) * LEVELS)
    return { rows, columns, cells: Array.from(sums, level).join(''), used, experts: layers * experts }
  }
}

/** What a file says, where that is a strip. */
export function readStrip(value: unknown): HeatStrip | null {
  const { rows, columns, cells, used, experts } = (value ?? {}) as Record<string, unknown>
  const isCount = (number: unknown, most: number): number is number =>
    Number.isInteger(number) && (number as number) > 0 && (number as number) <= most
  if (!isCount(rows, MOST_ROWS) || !isCount(columns, MOST_COLUMNS) || !isCount(experts, 1e9) || !isCount(used, experts))
    return null
  if (typeof cells !== 'string' || cells.length !== rows * columns || !/^\d+$/.test(cells)) return null
  return { rows, columns, cells, used, experts }
}
