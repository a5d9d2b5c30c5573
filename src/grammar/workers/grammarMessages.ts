// What a session and its grammar workers say to each other. There are two, from the same file: one drafts grammars and has no
// vocabulary, one walks them with their answers. A client's schema keeps only the first one busy.
import type { LineWorker } from '../../text/workers/workerQueue.js'
import type { Program } from '../automaton/program.js'
import type { VocabularyBytes } from '../automaton/tokenTrie.js'

export type GrammarRequest =
  /** Makes a program of a source (see grammarSource.ts). */
  | { readonly type: 'draft'; readonly source: string }
  /** Stands at the start of a program, or where some tokens lead. `code` comes with the first request for a program. */
  | {
      readonly type: 'open'
      readonly program: number
      readonly code: Program | null
      readonly handle: number
      readonly tokens: readonly number[]
    }
  | { readonly type: 'accept'; readonly handle: number; readonly token: number }
  /** The mask behind these tokens; the walker stays where it is. */
  | { readonly type: 'peek'; readonly handle: number; readonly tokens: readonly number[] }
  | { readonly type: 'close'; readonly handle: number }
  | { readonly type: 'forget'; readonly program: number }

export type GrammarReply =
  | { readonly program: Program }
  | { readonly mask: Uint32Array | null }
  /** The worker does not know the program or the handle: it is another one than before. */
  | { readonly lost: true }
  | { readonly schemaError: { readonly keyword: string; readonly path: string; readonly detail?: string } }
  | { readonly grammarError: string }
  | { readonly bug: string }

export type GrammarWorker = LineWorker<GrammarRequest, GrammarReply>

/** Starts a worker that drafts (without a vocabulary) or walks (with one). */
export type StartGrammarWorker = (vocabulary: VocabularyBytes | null) => GrammarWorker | Promise<GrammarWorker>
