// What a place must offer in which states of conversations outlive a process: bytes by name, and nothing else. Others can
// write one. Names are short and safe everywhere: letters, digits, '.', '_', '-' and one '/'.

/**
 * Objects are named by what they hold: whoever writes a name again writes the same bytes, and none is ever changed, but for
 * small ones (`…/note-…`), of which the last one written counts. What fails throws; nothing half-written is ever read. Calls overlap. `signal`: nobody waits for the result any more.
 */
export interface PrefixStore {
  /** Where it is, for people; without credentials. */
  readonly location: string
  /** Which of the names are there, in one round trip. */
  has(names: readonly string[], signal?: AbortSignal): Promise<boolean[]>
  /** The bytes of each, in one round trip; null for what is not there. Counts as use, where what is unused goes. */
  get(names: readonly string[], signal?: AbortSignal): Promise<(Uint8Array | null)[]>
  put(name: string, bytes: Uint8Array, signal?: AbortSignal): Promise<void>
  /** The object is damaged. */
  remove(name: string, signal?: AbortSignal): Promise<void>
  close(): Promise<void>
}
