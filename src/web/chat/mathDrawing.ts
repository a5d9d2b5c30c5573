// Typesets the formulas of a drawn answer. KaTeX and its fonts are fetched when the first formula appears and not before. It
// builds elements instead of HTML, because the page's CSP takes no styles written in HTML. What it cannot read stays TeX.
type Katex = typeof import('./katex.js')

const OPTIONS = { throwOnError: true, strict: 'ignore', trust: false, maxSize: 20, maxExpand: 500 } as const
const UNDRAWN = '.math:not(.drawn, .plain)'

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
    const source = element.textContent ?? ''
    const displayMode = element.classList.contains('displayed')
    try {
      const drawn = document.createElement('span')
      katex.render(source, drawn, { ...OPTIONS, displayMode })
      element.replaceChildren(...drawn.childNodes)
      element.classList.add('drawn')
      if (displayMode) {
        element.tabIndex = 0 // scrolled by key where it is too wide
        element.setAttribute('role', 'group')
        element.setAttribute('aria-label', 'Formula')
      }
    } catch {
      element.classList.add('plain')
    }
  }
}
