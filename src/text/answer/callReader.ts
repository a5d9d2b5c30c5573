// One tool call as it is being written, character by character: where it ends, what it says, and what is known of it before
// it ends. A reader knows nothing of the stream around the call.

export interface ToolCall {
  readonly name: string
  /** JSON text of an object, as the model wrote it where it wrote JSON (numbers keep all their digits). */
  readonly arguments: string
}

export type CallState = 'open' | 'closed' | 'broken'

export interface CallReader {
  /** Everything pushed, what closes the call too. */
  readonly text: string
  /** The name as soon as arguments may be told, else null. A call that breaks later has told them in vain. */
  readonly name: string | null
  /** `broken`: it cannot be a call any more. */
  push(character: string): CallState
  /** What is certain of the arguments' text, and was not taken before. */
  takeArguments(): string
  /** The call, also where nothing has closed it; null where this is none. */
  call(): ToolCall | null
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === 'object' && !Array.isArray(value)
}
