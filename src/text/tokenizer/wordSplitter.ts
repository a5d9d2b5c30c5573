// Cuts text into the words that merging works on, one after the other: whoever has seen enough stops, and a text of
// megabytes never becomes a list of all its words. The rules are the pre-tokenizer's of tokenizer.json as the library
// reads them; those that go by a pattern are run here, others are given to the library piece by piece.

/** What the library makes of a pre-tokenizer, as far as it is used here. */
interface LibraryStep {
  readonly tokenizers?: readonly (LibraryStep | null)[] // of a sequence
  readonly config?: { readonly type?: string; readonly invert?: boolean; readonly behavior?: string }
  readonly pattern?: RegExp | null
  readonly use_regex?: boolean
  readonly add_prefix_space?: boolean
  pre_tokenize(text: string, options: object): string[]
}

interface Step {
  /** Whether each character of a text is in one of its pieces. */
  readonly keepsAll: boolean
  /** Calls `visit` with each piece until it returns false; returns whether it went to the end. */
  run(text: string, visit: (piece: string) => boolean): boolean
}

export class WordSplitter {
  /** Whether words come as text; else in byte characters, because the library has put them so. */
  readonly givesText: boolean
  /** Whether each character of a text is in one of its words. */
  readonly keepsAll: boolean
  private readonly steps: readonly Step[]

  constructor(preTokenizer: unknown) {
    const all = flatten(preTokenizer as LibraryStep | null)
    const isByteLevel = (step: LibraryStep) => step.config?.type === 'ByteLevel'
    this.givesText = all.length > 0 && all.findIndex(isByteLevel) === all.length - 1
    this.steps = all.flatMap((step, i) =>
      this.givesText && i === all.length - 1 ? byteLevelSteps(step) : stepOf(step),
    )
    this.keepsAll = this.steps.every(step => step.keepsAll)
  }

  /** Calls `visit` with each word until it returns false; returns whether it went to the end. */
  forEach(text: string, visit: (word: string) => boolean): boolean {
    return this.run(0, text, visit)
  }

  private run(index: number, text: string, visit: (word: string) => boolean): boolean {
    if (text.length === 0) return true
    if (index === this.steps.length) return visit(text)
    const next = index + 1 === this.steps.length ? visit : (piece: string) => this.run(index + 1, piece, visit)
    return this.steps[index].run(text, next)
  }
}

function flatten(step: LibraryStep | null): LibraryStep[] {
  if (step === null) return []
  return step.tokenizers === undefined ? [step] : step.tokenizers.flatMap(inner => flatten(inner))
}

function stepOf(step: LibraryStep): Step {
  const { config, pattern } = step
  if (pattern instanceof RegExp) {
    const isPlainSplit = config?.type === 'Split' && !config.invert && config.behavior?.toLowerCase() !== 'removed'
    if (isPlainSplit) return new PatternStep(pattern, true)
    if (config?.type === 'Digits' || config?.type === 'Punctuation') return new PatternStep(pattern, false)
  }
  return {
    keepsAll: false, // not known
    run(text, visit) {
      for (const piece of step.pre_tokenize(text, { section_index: 0 })) {
        if (piece.length > 0 && !visit(piece)) return false
      }
      return true
    },
  }
}

/** The last step of a byte-level tokenizer without its change of letters: bytes are looked up straight away. */
function byteLevelSteps(step: LibraryStep): Step[] {
  const steps: Step[] = []
  if (step.add_prefix_space) {
    steps.push({ keepsAll: true, run: (text, visit) => visit(text.startsWith(' ') ? text : ` ${text}`) })
  }
  if (step.use_regex) steps.push(new PatternStep(step.pattern as RegExp, false))
  return steps
}

/** The matches of a pattern, and what is between them; without that, the pattern matches everywhere. */
class PatternStep implements Step {
  readonly keepsAll = true
  private readonly here: RegExp
  private readonly anywhere: RegExp

  constructor(
    pattern: RegExp,
    private readonly withGaps: boolean,
  ) {
    this.anywhere = new RegExp(pattern.source, pattern.flags.replace('y', ''))
    this.here = new RegExp(pattern.source, `${pattern.flags.replace('g', '')}y`)
  }

  run(text: string, visit: (piece: string) => boolean): boolean {
    const { here, anywhere, withGaps } = this
    let from = 0 // where the next match is looked for
    let done = 0 // an empty match cuts what is between others in two
    while (from < text.length) {
      // Patterns of tokenizers match nearly everywhere: a look at the very place makes no search and no match object.
      let start = from
      let end = from
      here.lastIndex = from
      if (here.test(text)) end = here.lastIndex
      else {
        anywhere.lastIndex = from
        const match = anywhere.exec(text)
        if (match === null) break
        start = match.index
        end = start + match[0].length
      }
      if (withGaps && start > done && !visit(text.slice(done, start))) return false
      if (end > start && !visit(text.slice(start, end))) return false
      done = end
      from = end > start ? end : end + (text.codePointAt(end)! > 0xffff ? 2 : 1)
    }
    return !withGaps || done === text.length || visit(text.slice(done))
  }
}
