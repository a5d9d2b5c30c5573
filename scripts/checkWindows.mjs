// Keeps the archive for Windows working: builds it, and runs its `run`, `convert`, `verify` and `serve` under Wine. What they answer
// and write is compared with what the same build does here. Needs `wine` and a whole dist/. Wine 8 starts Node 22 at most, Wine 10
// also newer ones.
//   node scripts/checkWindows.mjs [--node 22]
import { execFileSync, spawn } from 'node:child_process'
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { buildFolder, preparePackage } from './buildArchives.mjs'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const { values } = parseArgs({ options: { node: { type: 'string', default: '22' } } })
const scratch = mkdtempSync(join(tmpdir(), 'moeflux-windows-'))
const home = join(scratch, 'moe flux') // quoted, then
const drive = join(scratch, 'prefix/drive_c')
const env = {
  ...process.env,
  ...{ WINEPREFIX: join(scratch, 'prefix'), WINEDEBUG: '-all', MOEFLUX_HOME: 'C:\\store' },
}
const DEADLINE_MS = 180_000

/** A path of this machine as Windows sees it. */
const windows = path => `Z:${path.replaceAll('/', '\\')}`

let started = 0

/** Starts a program under Wine. Its output goes to files: Node does not write to this system's pipes there. */
function start(...args) {
  const files = ['out', 'err'].map(name => join(scratch, `${++started}.${name}`))
  const [stdout, stderr] = files.map(file => openSync(file, 'w'))
  const child = spawn('wine', args, { cwd: scratch, env, stdio: ['ignore', stdout, stderr] })
  closeSync(stdout)
  closeSync(stderr)
  const output = () => ({ stdout: readFileSync(files[0], 'utf8'), stderr: readFileSync(files[1], 'utf8') })
  const timer = setTimeout(() => child.kill('SIGKILL'), DEADLINE_MS)
  const ended = new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', code => {
      clearTimeout(timer)
      resolve({ code, ...output() })
    })
  })
  return { child, output, ended }
}
const moeflux = (...args) =>
  start(windows(join(home, 'node.exe')), windows(join(home, 'package/dist/apps/cli/main.js')), ...args)

function same(got, want, what) {
  if (got !== want) throw new Error(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`)
}

async function ends(run, code = 0) {
  const result = await run.ended
  same(result.code, code, `exit code with ${result.stderr}`)
  return result
}

async function until(what, isSo) {
  for (const deadline = Date.now() + DEADLINE_MS; !(await isSo()); await sleep(20)) {
    if (Date.now() > deadline) throw new Error(`${what}: not within ${DEADLINE_MS / 1000} s`)
  }
}

const demo = join(root, 'dist/demo-model')
const source = windows(join(root, 'demo-model'))
const PROMPT = 'Tell me a story about a girl named Mia'
const ANSWER = ['run', '--quiet', '--backend', 'wasm', '--precision', 'exact', '--temp', '0', '-n', '40']

/** The folder holds what the same conversion wrote here. */
function samePacked(folder) {
  const files = path =>
    readdirSync(path, { recursive: true, withFileTypes: true })
      .filter(entry => entry.isFile() && entry.name !== 'moeflux.json') // names its source
      .map(entry => join(entry.parentPath, entry.name).slice(path.length + 1))
      .sort()
  same(files(folder).join(), files(demo).join(), 'files')
  for (const name of files(demo)) {
    if (!readFileSync(join(folder, name)).equals(readFileSync(join(demo, name))))
      throw new Error(`${name} is different`)
  }
}

const checks = {
  async 'the launcher says its version'() {
    const { stdout } = await ends(start(windows(join(home, 'moeflux.cmd')), '--version'))
    same(stdout.trim(), JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version, 'version')
  },
  async 'run answers as here'() {
    const here = execFileSync(process.execPath, [join(root, 'dist/apps/cli/main.js'), ...ANSWER, PROMPT])
    same((await ends(moeflux(...ANSWER, PROMPT))).stdout, here.toString(), 'answer')
  },
  async 'run takes the GPU or does without, and packs a folder into the store'() {
    const { stdout } = await ends(moeflux('run', '-q', '-m', source, '-n', '8', PROMPT))
    same(stdout.trim() !== '', true, 'an answer')
    same(existsSync(join(drive, 'store/packed')), true, 'the store')
  },
  async 'convert writes what it writes here'() {
    await ends(moeflux('convert', '--name', 'moeflux-demo', source, 'C:\\my models\\packed'))
    samePacked(join(drive, 'my models/packed'))
  },
  async 'verify finds nothing wrong, and then the byte that is'() {
    await ends(moeflux('verify', 'C:\\my models\\packed'))
    const file = join(drive, 'my models/packed/packed_experts/layer_02.bin')
    const whole = readFileSync(file)
    writeFileSync(file, Buffer.from(whole).fill(whole[1000] ^ 1, 1000, 1001))
    const { stdout, stderr } = await ends(moeflux('verify', 'C:\\my models\\packed'), 1)
    same(/layer_02\.bin/.test(stdout + stderr), true, `names the file: ${stdout}${stderr}`)
    writeFileSync(file, whole)
  },
  async 'two conversions of one folder wait for each other'() {
    const two = [1, 2].map(() => moeflux('convert', '--name', 'moeflux-demo', source, 'C:\\both'))
    const said = (await Promise.all(two.map(run => ends(run)))).map(({ stderr }) => stderr)
    same(said.filter(text => text.includes('already holds')).length, 1, said.join())
    samePacked(join(drive, 'both'))
  },
  async 'a conversion that is killed is resumed'() {
    const { child, ended } = moeflux('convert', '--name', 'moeflux-demo', source, 'C:\\killed')
    await until('some bytes', () => existsSync(join(drive, 'killed/packed_experts')))
    child.kill('SIGKILL')
    await ended
    await ends(moeflux('convert', '--name', 'moeflux-demo', source, 'C:\\killed'))
    samePacked(join(drive, 'killed'))
  },
  async 'serve answers, streams, keeps states in a folder, and stops with Ctrl-C'() {
    const { child, output, ended } = moeflux(
      'serve',
      '--port',
      '0',
      '--store',
      'C:\\states',
      '-m',
      'C:\\my models\\packed',
    )
    const address = () => /http:\/\/127\.0\.0\.1:\d+/.exec(output().stderr)?.[0]
    await until('an address', () => address() !== undefined || child.exitCode !== null)
    const url = address()
    const ask = async body => {
      const messages = [{ role: 'user', content: PROMPT }]
      const init = { method: 'POST', headers: { 'content-type': 'application/json' } }
      const response = await fetch(`${url}/v1/chat/completions`, {
        ...init,
        body: JSON.stringify({ messages, temperature: 0, max_tokens: 20, ...body }),
      })
      same(response.status, 200, 'status')
      return response
    }
    same((await (await fetch(`${url}/health`)).json()).status, 'ok', 'health')
    const { content } = (await (await ask({})).json()).choices[0].message
    const events = (await (await ask({ stream: true })).text()).split('\n\n').map(event => event.slice('data: '.length))
    same(events.at(-2), '[DONE]', 'the last event')
    const pieces = events.slice(0, -2).map(event => JSON.parse(event).choices[0]?.delta.content ?? '')
    same(pieces.join(''), content, 'streamed')
    same((await (await fetch(url)).text()).startsWith('<!doctype html>'), true, 'the page')
    child.kill('SIGINT') // Wine makes Ctrl-C of it
    const { code, stderr } = await ended
    same(code, 130, `exit code with ${stderr}`)
    same(/stopping/.test(stderr), true, `stops in order: ${stderr}`)
    same(readdirSync(join(drive, 'states'), { recursive: true }).length > 0, true, 'states')
  },
}

async function main() {
  const packed = preparePackage(join(scratch, 'packed'))
  buildFolder('win-x64', home, packed, values.node)
  mkdirSync(join(scratch, 'prefix'))
  execFileSync('wineboot', ['--init'], { env, stdio: 'ignore' })
  // Older ones are Windows 7 by default, which Node refuses.
  await ends(start('reg', 'add', 'HKCU\\Software\\Wine', '/v', 'Version', '/d', 'win10', '/f'))
  let failed = 0
  for (const [name, check] of Object.entries(checks)) {
    const began = performance.now()
    const problem = await check().then(
      () => null,
      error => error,
    )
    const seconds = ((performance.now() - began) / 1000).toFixed(1)
    console.log(problem === null ? `ok      ${name} (${seconds} s)` : `FAILED  ${name}: ${problem.message}`)
    if (problem !== null) failed++
  }
  return failed
}

try {
  process.exitCode = (await main()) > 0 ? 1 : 0
} finally {
  execFileSync('wineserver', ['--kill'], { env, stdio: 'ignore' })
  rmSync(scratch, { recursive: true, force: true })
}
