// The worker behind constraint.ts: compiles grammars with xgrammar and walks them token by token. One vocabulary per
// worker; compiled grammars are kept for as long as the worker lives, since clients send the same schema again and again.
import { parentPort, workerData } from 'node:worker_threads'
import { loadXgrammar } from './loadXgrammar.js'
import { Utf8Guard } from './utf8Guard.js'

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

const MAX_COMPILED = 64

// xgrammar tells why it refuses a grammar on the console only. Bound at load, so the console is replaced before.
let complaint = ''
console.error = console.warn = (text: unknown) => {
  const match = /\[FATAL\].*?: (EBNF.*|.*)$/.exec(String(text))
  if (match !== null) complaint = match[1]
}

const xgrammar = loadXgrammar()
const { pieces, vocabSize, stopTokenIds } = workerData as ConstraintWorkerData
const guard = new Utf8Guard(pieces)
const compiler = xgrammar.TokenizerInfo.createTokenizerInfo([...guard.pieces], 'byte_level', false, vocabSize, [
  ...stopTokenIds,
]).then(info => xgrammar.GrammarCompiler.createGrammarCompiler(info, false))

type Compiled = Awaited<ReturnType<Awaited<typeof compiler>['compileGrammar']>>
type Matcher = Awaited<ReturnType<typeof xgrammar.GrammarMatcher.createGrammarMatcher>>

const compiled = new Map<string, Compiled>()
const matchers = new Map<number, { matcher: Matcher; lastToken: number | null }>()
let nextHandle = 1

async function compile(grammar: string): Promise<Compiled> {
  let result = compiled.get(grammar)
  if (result === undefined) result = await (await compiler).compileGrammar(grammar, 'root')
  compiled.delete(grammar)
  compiled.set(grammar, result)
  if (compiled.size > MAX_COMPILED) {
    const oldest = compiled.keys().next().value as string
    compiled.get(oldest)?.dispose()
    compiled.delete(oldest)
  }
  return result
}

async function answer(request: ConstraintRequest): Promise<ConstraintReply> {
  if (request.type === 'close') {
    matchers.get(request.handle)?.matcher.dispose()
    matchers.delete(request.handle)
    return { handle: request.handle, mask: null }
  }
  let handle: number
  if (request.type === 'open') {
    handle = nextHandle++
    const matcher = await xgrammar.GrammarMatcher.createGrammarMatcher(await compile(request.grammar))
    matchers.set(handle, { matcher, lastToken: null })
  } else handle = request.handle
  const entry = matchers.get(handle)
  if (entry === undefined) throw new Error(`there is no constraint ${handle}`)
  const { matcher } = entry
  for (const token of request.tokens) {
    if (!matcher.acceptToken(token)) throw new Error(`token ${token} does not follow the grammar`)
    entry.lastToken = token
  }
  // After a stop token nothing may follow, and there is no mask to ask for.
  if (matcher.isTerminated()) return { handle, mask: new Uint32Array(Math.ceil(vocabSize / 32)) }
  const mask = new Uint32Array((await matcher.getNextTokenBitmask()).slice().buffer)
  guard.apply(mask, entry.lastToken)
  return { handle, mask }
}

// One request at a time: messages would otherwise interleave at every await.
let last: Promise<unknown> = Promise.resolve()
parentPort?.on('message', (message: ConstraintRequest & { id: number }) => {
  last = last.then(async () => {
    let reply: ConstraintReply
    complaint = ''
    try {
      reply = await answer(message)
    } catch (error) {
      reply = { handle: 0, mask: null, error: complaint || (error instanceof Error ? error.message : String(error)) }
    }
    parentPort?.postMessage({ id: message.id, ...reply }, reply.mask === null ? [] : [reply.mask.buffer as ArrayBuffer])
  })
})
