// What a soak needs before it begins: a folder of its own with a copy of the model, the right answers of the catalogue as a
// quiet server with one thread gives them, and the files that the server should serve.
import { cp, mkdtemp, readdir, readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { answerKey, readAnswer } from '../harness/answers.mjs'
import { exchange } from '../harness/exchange.mjs'
import { startServer } from '../harness/serverProcess.mjs'
import { catalogue } from './catalogue.mjs'

const DEMO_MODEL = fileURLToPath(new URL('../../../dist/demo-model', import.meta.url))
const MAX_BODY_BYTES = 32 * 2 ** 20
const ANSWER_MS = 60_000

export async function prepareWorld({ contextLength, without }, say) {
  const folder = await mkdtemp(join(tmpdir(), 'moeflux-soak-'))
  const modelFolder = join(folder, 'model')
  await cp(DEMO_MODEL, modelFolder, { recursive: true })
  const entries = catalogue()
  const started = performance.now()
  const quiet = await startServer({
    folder: join(folder, 'quiet'),
    args: ['--model', DEMO_MODEL, '--backend', 'wasm', '--threads', '1', '--context', String(contextLength)],
  })
  let files
  try {
    for (const [i, entry] of entries.entries()) entry.right = await rightAnswer(quiet.port, entry, i % 2 === 0)
    files = await servedFiles(quiet.port)
  } finally {
    await quiet.stop(10_000)
  }
  say(`${entries.length} right answers from a quiet server in ${Math.round((performance.now() - started) / 1000)} s`)
  return {
    folder,
    modelFolder,
    storeFolder: join(folder, 'store'),
    catalogue: entries,
    files,
    contextLength,
    maxBodyBytes: MAX_BODY_BYTES,
    without,
  }
}

async function rightAnswer(port, { name, path, body }, stream) {
  const reply = await exchange({
    port,
    path,
    headers: { 'content-type': 'application/json' },
    body: Buffer.from(JSON.stringify({ ...body, stream })),
    limitMs: ANSWER_MS,
  })
  if (reply.status !== 200) throw new Error(`${name}: the quiet server said ${reply.status} ${reply.text}`)
  return answerKey(readAnswer(path, reply))
}

async function servedFiles(port) {
  const { models } = await (await fetch(`http://127.0.0.1:${port}/models/index.json`)).json()
  const names = ['config.json', 'model_weights.bin', 'packed_experts/layer_00.bin', 'packed_experts/layer_05.bin']
  return Promise.all(
    names.map(async name => ({
      path: `/models/${models[0].path}${name}`,
      bytes: await readFile(join(DEMO_MODEL, name)),
    })),
  )
}

/** Names of files of the model's copy that are not as they were. */
export async function changedFiles(modelFolder) {
  const changed = []
  for (const entry of await readdir(DEMO_MODEL, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    const original = join(entry.parentPath, entry.name)
    const copy = original.replace(DEMO_MODEL, modelFolder)
    const [a, b] = await Promise.all([readFile(original), readFile(copy).catch(() => Buffer.alloc(0))])
    if (!a.equals(b)) changed.push(entry.name)
  }
  return changed
}
