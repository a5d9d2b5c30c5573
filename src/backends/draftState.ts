// What the head for drafts knows of a sequence, on every backend: shared by held states, never changed. Its keys and values lie in
// the sequence's pages: those of token t are made of t and the hidden row of the token before.

export interface DraftState {
  readonly hidden: Float32Array // [hidden], of the last token, after the model's final norm
  readonly firstRow: number // rows before it were never computed
}
