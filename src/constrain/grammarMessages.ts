// What a session and its grammar worker say to each other. Apart from the worker itself, whose types are those of a library
// that users of the package do not have.

export interface ConstraintWorkerData {
  readonly pieces: readonly string[]
  readonly vocabSize: number
  readonly stopTokenIds: readonly number[]
}

export type ConstraintRequest =
  | { readonly type: 'open'; readonly grammar: string; readonly tokens: readonly number[] }
  | { readonly type: 'accept'; readonly handle: number; readonly tokens: readonly number[] }
  | { readonly type: 'close'; readonly handle: number }

export interface ConstraintReply {
  readonly handle: number
  readonly mask: Uint32Array | null
  readonly error?: string
}
