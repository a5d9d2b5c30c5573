// A call that is a JSON object with `name` and `arguments`. What closes it does so only after the object: inside of a string
// it is part of the string.
import { type CallReader, type CallState, isObject, type ToolCall } from './callReader.js'

export class JsonCallReader implements CallReader {
  name: string | null = null
  private readonly characters: string[] = []
  private readonly members = new MemberReader()
  private depth = 0
  private inString = false
  private escaped = false
  private tail: string | null = null // after the object
  private fresh = '' // arguments that were not taken
  private telling = false

  constructor(private readonly close: string) {}

  get text(): string {
    return this.characters.join('')
  }

  push(character: string): CallState {
    this.characters.push(character)
    if (this.tail !== null) {
      this.tail = (this.tail + character).trimStart()
      if (this.tail === this.close) return 'closed'
      return this.close.startsWith(this.tail) ? 'open' : 'broken'
    }
    const before = this.depth
    const wasInString = this.inString
    if (this.escaped) this.escaped = false
    else if (this.inString) {
      if (character === '\\') this.escaped = true
      else if (character === '"') this.inString = false
    } else if (character === '"') this.inString = true
    else if (character === '{' || character === '[') this.depth++
    else if (character === '}' || character === ']') {
      if (--this.depth === 0) this.tail = ''
    }
    this.tell(character, before, wasInString)
    return 'open'
  }

  takeArguments(): string {
    const { fresh } = this
    this.fresh = ''
    return fresh
  }

  call(): ToolCall | null {
    const trimmed = this.text.trim()
    return parseJsonCall(trimmed.endsWith(this.close) ? trimmed.slice(0, -this.close.length).trim() : trimmed)
  }

  /** Arguments are told as they come where the name came before them, which is how all templates show it. */
  private tell(character: string, depth: number, wasInString: boolean): void {
    if (this.telling) {
      this.fresh += character
      this.telling = this.depth > 1
      return
    }
    if (depth !== 1) return
    this.members.push(character, wasInString || this.inString)
    const { key, name } = this.members
    const isArguments = key === 'arguments' || key === 'parameters'
    if (this.name !== null || name === null || !isArguments || character !== '{' || wasInString) return
    this.name = name
    this.telling = true
    this.fresh = character
  }
}

/** Reads what stands directly in the outermost object: the key whose value comes now, and the value of `name`. */
class MemberReader {
  key: string | null = null
  name: string | null = null
  private string = ''

  push(character: string, isInString: boolean): void {
    if (isInString) {
      this.string += character
    } else if (character === ':') {
      this.key = stringOf(this.string)
      this.string = ''
    } else if (character === ',') {
      this.finish()
    }
  }

  private finish(): void {
    if (this.key === 'name') this.name = stringOf(this.string) || null
    this.key = null
    this.string = ''
  }
}

function stringOf(json: string): string | null {
  try {
    const value: unknown = JSON.parse(json)
    return typeof value === 'string' ? value : null
  } catch {
    return null
  }
}

function parseJsonCall(body: string): ToolCall | null {
  let call: unknown
  try {
    call = JSON.parse(body)
  } catch {
    return null
  }
  if (!isObject(call) || typeof call.name !== 'string' || call.name === '') return null
  const key = call.arguments !== undefined ? 'arguments' : 'parameters'
  const value = call[key]
  if (value === undefined || value === null) return { name: call.name, arguments: '{}' }
  if (isObject(value)) return { name: call.name, arguments: valueText(body, key) ?? JSON.stringify(value) }
  if (typeof value !== 'string') return null
  try {
    return isObject(JSON.parse(value)) ? { name: call.name, arguments: value } : null
  } catch {
    return null
  }
}

/** The text of the value of a key of the outermost object: the last one, as JSON.parse takes it. */
function valueText(json: string, key: string): string | null {
  let depth = 0
  let found: string | null = null
  let start = -1
  for (let i = 0; i < json.length; i++) {
    const character = json[i]
    if (character === '"') {
      const from = i
      while (json[++i] !== '"') if (json[i] === '\\') i++
      if (depth !== 1 || start >= 0) continue
      const after = /^\s*:\s*/.exec(json.slice(i + 1, i + 64))
      if (after !== null && JSON.parse(json.slice(from, i + 1)) === key) {
        i += after[0].length
        start = i + 1
      }
    } else if (character === '{' || character === '[') depth++
    else if (character === '}' || character === ']') {
      depth--
      if (start >= 0 && depth === 1) {
        found = json.slice(start, i + 1)
        start = -1
      }
    } else if (character === ',' && depth === 1) start = -1
  }
  return found?.startsWith('{') ? found : null
}
