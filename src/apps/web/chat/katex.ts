// KaTeX with its style sheet: a part of the page of its own.
import 'katex/dist/katex.css'

export { default as katex } from 'katex'
