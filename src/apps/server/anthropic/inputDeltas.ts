// What is told of a call's input while it is written. Clients of this API read the pieces as JSON that goes on, and break at what
// cannot become any: from there on nothing is told until the call is whole, which it will not be.
import { JsonReader } from '../jsonReader.js'

const LIMITS = { maxDepth: 200, maxValues: 2 ** 17 }

export class InputDeltas {
  private readonly reader = new JsonReader(LIMITS)
  private told = 0 // characters
  private isBroken = false

  /** The part of the text that can be told. */
  push(text: string): string {
    if (this.isBroken) return ''
    try {
      this.reader.push(text)
    } catch {
      this.isBroken = true
      return ''
    }
    this.told += text.length
    return text
  }

  /** What was not told of the whole. */
  rest(whole: string): string {
    return whole.slice(this.told)
  }
}
