// Stop sequences in a text that streams in: the text before the first one, and which one it was. Text is held back while it
// could still become one.

export class StopSequences {
  found: string | null = null
  private held = ''
  private readonly stops: readonly string[]

  constructor(stops: readonly string[] = []) {
    this.stops = realStops(stops)
  }

  /** What is certain to come before any of them. */
  push(text: string): string {
    let out = ''
    for (const character of text) {
      if (this.found !== null) break
      this.held += character
      const stop = stopAtEnd(this.held, this.stops)
      const keep = stop?.length ?? longestPrefixAtEnd(this.held, this.stops)
      out += this.held.slice(0, this.held.length - keep)
      this.held = stop === null ? this.held.slice(this.held.length - keep) : ''
      this.found = stop
    }
    return out
  }

  /** The text is over: what was held back became none. */
  end(): string {
    const { held } = this
    this.held = ''
    return held
  }
}

export function realStops(stops: readonly string[] | undefined): readonly string[] {
  return (stops ?? []).filter(stop => stop.length > 0)
}

/** The longest stop sequence that `text` ends with. */
export function stopAtEnd(text: string, stops: readonly string[]): string | null {
  let best: string | null = null
  for (const stop of stops) if (text.endsWith(stop) && stop.length > (best?.length ?? 0)) best = stop
  return best
}

/** Length of the longest end of `text` that is the beginning of a pattern. */
export function longestPrefixAtEnd(text: string, patterns: readonly string[]): number {
  let best = 0
  for (const pattern of patterns) {
    for (let length = Math.min(text.length, pattern.length - 1); length > best; length--) {
      if (pattern.startsWith(text.slice(text.length - length))) best = length
    }
  }
  return best
}
