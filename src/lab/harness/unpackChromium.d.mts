export interface UnpackedChromium {
  readonly executable: string
  /** What the process needs to find its libraries and fonts. */
  readonly environment: Record<string, string>
}

export function unpackChromium(): UnpackedChromium
