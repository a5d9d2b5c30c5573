// A frame as one line of JSON, for a stream of events. Few experts are routed to between two frames, so their counts go
// as pairs of cell and count; the experts in memory are a bitmap in base64.
import type { EngineFrame } from './engineFrame.js'

interface WireFrame extends Omit<EngineFrame, 'routed' | 'resident'> {
  readonly routed: readonly number[] // cell, count, cell, count, …
  readonly resident: string
}

export function encodeFrame(frame: EngineFrame): string {
  const pairs: number[] = []
  frame.routed.forEach((count, cell) => {
    if (count > 0) pairs.push(cell, count)
  })
  return JSON.stringify({ ...frame, routed: pairs, resident: encodeBits(frame.resident) } satisfies WireFrame)
}

/** `cells`: layers × experts. */
export function decodeFrame(text: string, cells: number): EngineFrame {
  const wire = JSON.parse(text) as WireFrame
  const routed = new Uint32Array(cells)
  for (let i = 0; i + 1 < wire.routed.length; i += 2) routed[wire.routed[i]] = wire.routed[i + 1]
  return { ...wire, routed, resident: decodeBits(wire.resident, cells) }
}

function encodeBits(flags: Uint8Array): string {
  const bytes = new Uint8Array(Math.ceil(flags.length / 8))
  flags.forEach((flag, i) => {
    if (flag) bytes[i >> 3] |= 1 << (i & 7)
  })
  let binary = ''
  for (const byte of bytes) binary += String.fromCharCode(byte)
  return btoa(binary)
}

function decodeBits(text: string, count: number): Uint8Array {
  const binary = atob(text)
  return Uint8Array.from({ length: count }, (_, i) => (binary.charCodeAt(i >> 3) >> (i & 7)) & 1)
}
