// Files that people save and send each other: routing traces, chats of the command line, conversations of the web page.
import { join } from 'node:path'
import { parseTranscript } from '#moeflux/apps/cli/chat/transcript.js'
import { decodeTrace, encodeTrace } from '#moeflux/lab/traces/routingTrace.js'
import { simulateTrace } from '#moeflux/lab/traces/simulateTrace.js'
import { workFolder } from '../caseFolder.mjs'
import { brokenBytes, joined } from '../mutateBytes.mjs'
import { brokenJson } from '../mutateJson.mjs'
import { parsed, repository } from './material.mjs'
import { Wrong } from './wrong.mjs'

export async function savedReaders() {
  return { trace: traceReader(), transcript: transcriptReader(), conversations: await conversationReader() }
}

function traceReader() {
  const valid = encodeTrace({
    model: 'demo',
    layers: 2,
    experts: 8,
    expertsPerToken: 2,
    expertBytes: 64,
    engine: { backend: 'wasm', policy: 'lru', slots: 6, hits: 3, misses: 4, computeSecondsPerToken: 0.01 },
    steps: [1, 3, 1].map(tokens => ({ tokens, experts: Uint16Array.from({ length: 4 * tokens }, (_, i) => i % 8) })),
  })
  const headerEnd = valid.indexOf(10)
  const header = parsed(valid.subarray(0, headerEnd))
  return {
    valid,
    make(random) {
      if (random.chance(0.4)) return brokenBytes(valid, random)
      return joined(new TextEncoder().encode(brokenJson(header, random)), valid.subarray(headerEnd))
    },
    read(bytes) {
      const trace = decodeTrace(bytes, 'routing.trace')
      simulateTrace(trace, trace.engine.policy === 'lru' ? 'lru' : 'lrfu', trace.engine.slots)
    },
    names: ['routing.trace'],
  }
}

function transcriptReader() {
  const turns = [
    { role: 'user', content: 'Hi' },
    { role: 'assistant', content: 'Hello', reasoning_content: 'A greeting' },
  ]
  const valid = { kind: 'moeflux chat', version: 1, model: 'demo', system: 'Be kind', turns }
  return {
    valid: JSON.stringify(valid),
    make: random => brokenJson(valid, random),
    read(text) {
      const found = parseTranscript(text, 'chat.json')
      const texts = [found.model, found.system ?? '', ...found.turns.flatMap(({ role, content }) => [role, content])]
      if (!texts.every(each => typeof each === 'string')) throw new Wrong('a chat with something else than text in it')
    },
    names: ['chat.json'],
  }
}

/** The page's reader is TypeScript that no build puts into a module of its own. */
async function conversationReader() {
  const { rolldown } = await import('rolldown')
  const bundle = await rolldown({
    input: join(repository, 'src/apps/web/state/conversationFile.ts'),
    logLevel: 'silent',
  })
  const file = workFolder('conversationFile.mjs')
  await bundle.write({ file, format: 'esm' })
  const { fromJson, toJson, toMarkdown, ImportError } = await import(file)
  const message = (id, parent, role) => ({ id, parent, role, text: 'Hi', createdAt: 5, usage: { promptTokens: 1 } })
  const messages = [message('m1', null, 'user'), message('m2', 'm1', 'assistant'), message('m3', 'm2', 'user')]
  const conversation = { id: 'a', title: 'Chat', createdAt: 1, updatedAt: 2, system: '', head: 'm3', messages }
  const valid = { format: 'moeflux-conversations', version: 1, conversations: [conversation] }
  return {
    valid: JSON.stringify(valid),
    make: random => brokenJson(valid, random),
    read(text) {
      for (const found of fromJson(text)) {
        toMarkdown(found)
        fromJson(toJson([found]))
      }
    },
    isRefusal: error => error instanceof ImportError,
    names: ['file', 'export', 'conversation'],
  }
}
