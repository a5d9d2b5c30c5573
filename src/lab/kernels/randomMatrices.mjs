// Random matrices for checks of kernels, and how a GPU's memory holds them.
/** Matrices one behind the other, and where each is: their rows follow each other in the output. */
export function lay(matrices) {
  let size = 0
  let out = 0
  const pieces = []
  const place = bytes => {
    const at = size
    pieces.push({ at, bytes })
    size = Math.ceil((size + bytes.length) / 256) * 256
    return at
  }
  const halves = values =>
    new Uint8Array(Uint16Array.from(values, value => new Uint32Array(Float32Array.of(value).buffer)[0] >>> 16).buffer)
  const places = matrices.map(({ packed, scales, biases, rows }) => {
    const weight = place(new Uint8Array(packed.buffer))
    const made = { weight, scales: place(halves(scales)), biases: place(halves(biases)), out }
    out += rows
    return made
  })
  const bytes = new Uint8Array(size)
  for (const piece of pieces) bytes.set(piece.bytes, piece.at)
  return { bytes, places }
}

/** 4 bits in affine groups, scales and biases that bfloat16 holds. */
export function randomMatrix(random, rows, cols, group) {
  const bits = 4
  const packed = Uint32Array.from({ length: (rows * cols * bits) / 32 }, () => random() * 2 ** 32)
  const cut = value =>
    new Float32Array(new Uint32Array(Float32Array.of(value).buffer).map(word => word & 0xffff0000).buffer)[0]
  const scales = Float32Array.from({ length: (rows * cols) / group }, () =>
    cut((random() + 1) / (Math.sqrt(cols) * 2 ** bits)),
  )
  const biases = scales.map(scale => cut(-scale * 2 ** (bits - 1)))
  return { kind: 'quantized', rows, cols, bits, group, packed, scales, biases }
}
