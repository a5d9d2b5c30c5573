// Makes an animated PNG of screenshots: one palette for all, and of each frame only the rectangle that changed. Pixels in it that
// did not change are transparent, which compresses best. Programs that show no animation show the last frame.
import { crc32, deflateSync, inflateSync } from 'node:zlib'

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
const TRANSPARENT = 0 // the palette's first entry

/** The pixels of a PNG with 8 bits a channel, not interlaced, as screenshots are: red, green and blue. */
export function decodePng(bytes) {
  const data = []
  let header = null
  for (let at = SIGNATURE.length; at < bytes.length; ) {
    const length = bytes.readUInt32BE(at)
    const type = bytes.toString('latin1', at + 4, at + 8)
    const body = bytes.subarray(at + 8, at + 8 + length)
    if (type === 'IHDR') header = body
    if (type === 'IDAT') data.push(body)
    at += length + 12
  }
  const [width, height] = [header.readUInt32BE(0), header.readUInt32BE(4)]
  const channels = { 2: 3, 6: 4 }[header[9]]
  if (header[8] !== 8 || header[12] !== 0 || channels === undefined)
    throw new Error('want 8 bits, RGB or RGBA, not interlaced')
  return { width, height, pixels: unfilter(inflateSync(Buffer.concat(data)), width, height, channels) }
}

function unfilter(rows, width, height, channels) {
  const stride = width * channels
  const pixels = new Uint8Array(width * height * 3)
  let above = new Uint8Array(stride)
  for (let y = 0; y < height; y++) {
    const start = y * (stride + 1)
    const filter = rows[start]
    const row = Uint8Array.from(rows.subarray(start + 1, start + 1 + stride))
    for (let i = 0; i < stride; i++) {
      const left = i >= channels ? row[i - channels] : 0
      const corner = i >= channels ? above[i - channels] : 0
      row[i] += [0, left, above[i], (left + above[i]) >> 1, paeth(left, above[i], corner)][filter]
    }
    for (let x = 0; x < width; x++) pixels.set(row.subarray(x * channels, x * channels + 3), (y * width + x) * 3)
    above = row
  }
  return pixels
}

function paeth(left, above, corner) {
  const guess = left + above - corner
  const [a, b, c] = [Math.abs(guess - left), Math.abs(guess - above), Math.abs(guess - corner)]
  return a <= b && a <= c ? left : b <= c ? above : corner
}

/** `frames`: `{ width, height, pixels, ms }`, all of one size; frames that change nothing lengthen the one before. */
export function encodeAnimation(frames) {
  const [{ width, height }] = frames
  const { palette, indexOf } = makePalette(frames)
  const kept = []
  let shown = null
  for (const { pixels, ms } of frames) {
    const indices = new Uint8Array(width * height)
    for (let i = 0; i < indices.length; i++) indices[i] = indexOf(colourAt(pixels, i))
    const part = shown === null ? { x: 0, y: 0, width, height, indices } : changedPart(shown, indices, width, height)
    if (part === null) kept.at(-1).ms += ms
    else kept.push({ ...part, ms })
    shown = indices
  }
  let sequence = 0
  const chunks = kept.flatMap(part => [
    chunk('fcTL', frameControl(sequence++, part)),
    chunk('fdAT', Buffer.concat([word(sequence++), packRows(part)])),
  ])
  const still = chunk('IDAT', packRows({ width, height, indices: shown }))
  const header = Buffer.concat([word(width), word(height), Buffer.from([8, 3, 0, 0, 0])])
  return Buffer.concat([
    ...[SIGNATURE, chunk('IHDR', header), chunk('acTL', Buffer.concat([word(kept.length), word(0)]))],
    ...[chunk('PLTE', palette), chunk('tRNS', Buffer.from([0])), still, ...chunks, chunk('IEND', Buffer.alloc(0))],
  ])
}

const colourAt = (pixels, i) => (pixels[3 * i] << 16) | (pixels[3 * i + 1] << 8) | pixels[3 * i + 2]

/** The 255 colours that are used most; others become the nearest of these. */
function makePalette(frames) {
  const counts = new Map()
  for (const { pixels } of frames) {
    for (let i = 0; i < pixels.length / 3; i++) {
      const colour = colourAt(pixels, i)
      counts.set(colour, (counts.get(colour) ?? 0) + 1)
    }
  }
  const colours = [...counts]
    .sort((a, b) => b[1] - a[1])
    .slice(0, 255)
    .map(([colour]) => colour)
  const found = new Map(colours.map((colour, i) => [colour, i + 1]))
  const indexOf = colour => {
    let index = found.get(colour)
    if (index === undefined) {
      const distances = colours.map(other => distance(colour, other))
      index = distances.indexOf(Math.min(...distances)) + 1
      found.set(colour, index)
    }
    return index
  }
  return {
    palette: Buffer.from([0, ...colours].flatMap(colour => [colour >> 16, (colour >> 8) & 255, colour & 255])),
    indexOf,
  }
}

function distance(a, b) {
  const [red, green, blue] = [16, 8, 0].map(shift => ((a >> shift) & 255) - ((b >> shift) & 255))
  return red * red + green * green + blue * blue
}

/** The smallest rectangle with all that changed; null if nothing did. */
function changedPart(before, after, width, height) {
  let [left, right, top, bottom] = [width, -1, height, -1]
  for (let i = 0; i < after.length; i++) {
    if (before[i] === after[i]) continue
    const [x, y] = [i % width, Math.floor(i / width)]
    left = Math.min(left, x)
    right = Math.max(right, x)
    top = Math.min(top, y)
    bottom = Math.max(bottom, y)
  }
  if (right < 0) return null
  const part = { x: left, y: top, width: right - left + 1, height: bottom - top + 1 }
  const indices = new Uint8Array(part.width * part.height)
  for (let y = 0; y < part.height; y++) {
    for (let x = 0; x < part.width; x++) {
      const at = (top + y) * width + left + x
      indices[y * part.width + x] = before[at] === after[at] ? TRANSPARENT : after[at]
    }
  }
  return { ...part, indices }
}

function packRows({ width, height, indices }) {
  const rows = Buffer.alloc((width + 1) * height) // each after the byte of its filter, none
  for (let y = 0; y < height; y++) rows.set(indices.subarray(y * width, (y + 1) * width), y * (width + 1) + 1)
  return deflateSync(rows, { level: 9, memLevel: 9 })
}

/** Drawn over what is there, which stays. */
function frameControl(sequence, { x, y, width, height, ms }) {
  const delay = Buffer.alloc(6)
  delay.writeUInt16BE(Math.min(65_535, Math.round(ms)), 0)
  delay.writeUInt16BE(1000, 2)
  delay[5] = 1
  return Buffer.concat([sequence, width, height, x, y].map(word).concat(delay))
}

function word(value) {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}

function chunk(type, body) {
  const named = Buffer.concat([Buffer.from(type, 'latin1'), body])
  return Buffer.concat([word(body.length), named, word(crc32(named))])
}
