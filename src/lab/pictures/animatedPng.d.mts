export interface Picture {
  readonly width: number
  readonly height: number
  /** Red, green and blue of each pixel. */
  readonly pixels: Uint8Array
}

export interface Frame extends Picture {
  readonly ms: number
}

export function decodePng(bytes: Buffer): Picture
export function encodeAnimation(frames: readonly Frame[]): Buffer
