// Typesets the formulas of a drawn answer. KaTeX and its fonts are fetched when the first formula appears and not before. It
// builds elements instead of HTML, because the page's CSP takes no styles written in HTML. What it cannot read stays TeX.
type Katex = typeof import('./katex.js')

const OPTIONS = { throwOnError: true, strict: 'ignore', trust: false, maxSize: 20, maxExpand: 500 } as const
const UNDRAWN = '.math:not(.drawn, .plain)'

const MAX_KEPT = 500 // formulas

/** What was drawn of each source: a paragraph that grows is drawn anew with every word, and its formulas with it. */
const kept = new Map<string, DocumentFragment | null>()

let loaded: Katex | null = null
let loading: Promise<void> | null = null

/** Draws what is in `root`, now or when KaTeX is there. */
export function drawMath(root: HTMLElement): void {
  if (root.querySelector(UNDRAWN) === null) return
  if (loaded !== null) {
    drawAll(root, loaded)
    return
  }
  loading ??= import('./katex.js').then(
    module => {
      loaded = module
    },
    () => {
      loading = null // no network: the next formula asks again
    },
  )
  void loading.then(() => {
    if (loaded !== null) drawAll(root, loaded)
  })
}

function drawAll(root: HTMLElement, { katex }: Katex): void {
  for (const element of root.querySelectorAll<HTMLElement>(UNDRAWN)) {
    const displayMode = element.classList.contains('displayed')
    const drawn = typeset(element.textContent ?? '', displayMode, katex)
    element.classList.add(drawn === null ? 'plain' : 'drawn')
    if (drawn === null) continue
    element.replaceChildren(drawn.cloneNode(true))
    if (displayMode) {
      element.tabIndex = 0 // scrolled by key where it is too wide
      element.setAttribute('role', 'group')
      element.setAttribute('aria-label', 'Formula')
    }
  }
}

/** Null for what KaTeX cannot read. */
function typeset(source: string, displayMode: boolean, katex: Katex['katex']): DocumentFragment | null {
  const key = `${displayMode} ${source}`
  const before = kept.get(key)
  if (before !== undefined) return before
  const drawn = document.createElement('span')
  let fragment: DocumentFragment | null = document.createDocumentFragment()
  try {
    katex.render(source, drawn, { ...OPTIONS, displayMode })
    fragment.append(...drawn.childNodes)
  } catch {
    fragment = null
  }
  if (kept.size >= MAX_KEPT) kept.delete(kept.keys().next().value as string) // the oldest
  kept.set(key, fragment)
  return fragment
}
