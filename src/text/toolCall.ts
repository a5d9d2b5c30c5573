// One `<tool_call>` block: where it ends, and what it says. Two forms exist in this family: a JSON object with name and
// arguments, and tags (`<function=name><parameter=key>value</parameter></function>`). An end tag inside a JSON string
// is part of the string. Knows nothing of the stream around the block.

export interface ToolCall {
  readonly name: string
  /** JSON text of an object, as the model wrote it where it wrote JSON (numbers keep all their digits). */
  readonly arguments: string
}

const END = '</tool_call>'
const FUNCTION = '<function='
const RECENT = 1024

/** Takes the characters after `<tool_call>` until the block is closed, or cannot be a call any more. */
export class ToolCallScanner {
  private readonly characters: string[] = []
  private recent = '' // the end of the text: looking at the whole at each character would take n² steps
  private form: 'json' | 'tags' | null = null
  private depth = 0
  private inString = false
  private escaped = false
  private tail: string | null = null // after the JSON object
  private opening = true // still reading `<function=`

  /** Everything pushed, the end tag too. */
  get text(): string {
    return this.characters.join('')
  }

  push(character: string): 'open' | 'closed' | 'broken' {
    this.characters.push(character)
    if (this.form === null) {
      if (character.trim() === '') return 'open'
      if (character !== '{' && character !== '<') return 'broken'
      this.form = character === '{' ? 'json' : 'tags'
    }
    return this.form === 'json' ? this.jsonCharacter(character) : this.tagCharacter(character)
  }

  private jsonCharacter(character: string): 'open' | 'closed' | 'broken' {
    if (this.tail !== null) {
      this.tail = (this.tail + character).trimStart()
      if (this.tail === END) return 'closed'
      return END.startsWith(this.tail) ? 'open' : 'broken'
    }
    if (this.escaped) this.escaped = false
    else if (this.inString) {
      if (character === '\\') this.escaped = true
      else if (character === '"') this.inString = false
    } else if (character === '"') this.inString = true
    else if (character === '{' || character === '[') this.depth++
    else if (character === '}' || character === ']') {
      if (--this.depth === 0) this.tail = ''
    }
    return 'open'
  }

  private tagCharacter(character: string): 'open' | 'closed' | 'broken' {
    this.recent += character
    if (this.opening) {
      this.opening = this.recent.length < FUNCTION.length
      return FUNCTION.startsWith(this.recent) ? 'open' : 'broken'
    }
    if (this.recent.length > RECENT) this.recent = this.recent.slice(-RECENT / 2)
    if (character !== '>' || !this.recent.endsWith(END)) return 'open'
    return this.recent.slice(0, -END.length).trimEnd().endsWith('</function>') ? 'closed' : 'open'
  }
}

/** The call that a block holds (with or without its end tag), or null where it holds none. */
export function parseToolCall(
  block: string,
  parameterType?: (tool: string, parameter: string) => string | undefined,
): ToolCall | null {
  const trimmed = block.trim()
  const body = trimmed.endsWith(END) ? trimmed.slice(0, -END.length).trim() : trimmed
  return body.startsWith('{') ? parseJsonCall(body) : parseTaggedCall(body, parameterType)
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

function parseTaggedCall(
  body: string,
  parameterType?: (tool: string, parameter: string) => string | undefined,
): ToolCall | null {
  const open = /^<function=([^>\n]+)>/.exec(body)
  if (open === null || !body.endsWith('</function>')) return null
  const name = open[1].trim()
  let rest = body.slice(open[0].length, -'</function>'.length)
  const fields: string[] = []
  for (;;) {
    rest = rest.trimStart()
    if (rest === '') break
    const parameter = /^<parameter=([^>\n]+)>/.exec(rest)
    if (parameter === null) return null
    // A value may contain the end tag itself: it ends where another parameter or nothing follows.
    const after = rest.slice(parameter[0].length)
    const end = /<\/parameter>\s*(?=<parameter=|$)/.exec(after)
    if (end === null) return null
    const value = after.slice(0, end.index).replace(/^\n/, '').replace(/\n$/, '')
    const key = parameter[1].trim()
    fields.push(`${JSON.stringify(key)}: ${jsonOf(value, parameterType?.(name, key))}`)
    rest = after.slice(end.index + end[0].length)
  }
  return { name, arguments: `{${fields.join(', ')}}` }
}

/** Values between tags are bare text: the tool's schema says what they are. Without one, and where it fails, text. */
function jsonOf(value: string, type: string | undefined): string {
  if (type === undefined || type === 'string') return JSON.stringify(value)
  const trimmed = value.trim()
  const literal = type === 'boolean' || type === 'null' ? trimmed.toLowerCase().replace(/^none$/, 'null') : trimmed
  try {
    JSON.parse(literal)
    return literal
  } catch {
    return JSON.stringify(value)
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === 'object' && !Array.isArray(value)
}
