// Real servers for tests and measurements, on free ports of this machine: Redis, an S3 (s3rver), nginx and HAProxy with the
// configurations of deploy/. As a script it starts the stores and says where they are until it is stopped.
//
//   node src/lab/scaleOut/servers.mjs
//
// The programs are those of PATH, or at the paths that MOEFLUX_REDIS_SERVER, MOEFLUX_NGINX and MOEFLUX_HAPROXY say.
import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../../..', import.meta.url))
const PROGRAMS = {
  redis: { name: 'redis-server', variable: 'MOEFLUX_REDIS_SERVER' },
  nginx: { name: 'nginx', variable: 'MOEFLUX_NGINX' },
  haproxy: { name: 'haproxy', variable: 'MOEFLUX_HAPROXY' },
}
const PATH = `${process.env.PATH}:/usr/sbin:/usr/local/sbin`
const WAIT_MS = 15_000

const programOf = ({ name, variable }) => process.env[variable] || name

/** Null where the program is there, else one line that says how to get it. */
export function missing(server) {
  const { name, variable } = PROGRAMS[server]
  const program = programOf(PROGRAMS[server])
  const found = spawnSync('sh', ['-c', 'command -v "$0"', program], { env: { ...process.env, PATH } })
  if (found.status === 0) return null
  return program === name
    ? `${name} is not installed: apt-get install ${name}, or say with ${variable} where it is`
    : `${variable}: there is no program at ${program}`
}

export async function freePort() {
  return await new Promise((resolve, reject) => {
    const server = createServer()
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })
}

/** `args`: more options of redis-server. `port`: the same one again, after it was stopped. */
export async function startRedis({ args = [], port } = {}) {
  const at = port ?? (await freePort())
  const folder = mkdtempSync(join(tmpdir(), 'moeflux-redis-'))
  const own = ['--port', String(at), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', folder]
  const child = start(programOf(PROGRAMS.redis), [...own, ...args])
  await listening(at, child)
  return { port: at, url: `redis://127.0.0.1:${at}`, child, stop: () => stop(child, folder) }
}

/** In this process: s3rver has no program of its own that says when it listens. */
export async function startS3() {
  const { default: S3rver } = await import('s3rver')
  const folder = mkdtempSync(join(tmpdir(), 'moeflux-s3-'))
  const port = await freePort()
  const server = new S3rver({
    port,
    address: '127.0.0.1',
    directory: folder,
    silent: true,
    configureBuckets: [{ name: 'moeflux-test', configs: [] }],
  })
  await server.run()
  return {
    port,
    url: `s3://moeflux-test/states?endpoint=http://127.0.0.1:${port}`,
    env: { AWS_ACCESS_KEY_ID: 'S3RVER', AWS_SECRET_ACCESS_KEY: 'S3RVER' },
    async stop() {
      await server.close()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

/** nginx with deploy/nginx, before replicas at these ports. */
export async function startNginx(ports) {
  const port = await freePort()
  const folder = mkdtempSync(join(tmpdir(), 'moeflux-nginx-'))
  chmodSync(folder, 0o755) // workers of a root's nginx are somebody else, and keep large bodies there
  cpSync(join(root, 'deploy/nginx'), folder, { recursive: true })
  const servers = ports.map(to => `server 127.0.0.1:${to} max_conns=72 max_fails=1 fail_timeout=2s;\n`)
  writeFileSync(join(folder, 'replicas.conf'), servers.join(''))
  writeFileSync(join(folder, 'listen.conf'), `listen 127.0.0.1:${port};\n`)
  const child = start(programOf(PROGRAMS.nginx), ['-p', folder, '-c', join(folder, 'nginx.conf'), '-g', 'daemon off;'])
  await listening(port, child)
  return { port, url: `http://127.0.0.1:${port}`, stop: () => stop(child, folder) }
}

/** HAProxy with deploy/haproxy, before replicas at these ports. */
export async function startHaproxy(ports) {
  const port = await freePort()
  const folder = mkdtempSync(join(tmpdir(), 'moeflux-haproxy-'))
  cpSync(join(root, 'deploy/haproxy'), folder, { recursive: true })
  const text = spawnSync('cat', [join(folder, 'replicas.cfg')], { encoding: 'utf8' }).stdout
  const lines = text.split('\n').filter(line => !/^\s*server /.test(line))
  const servers = ports.map((to, i) => `  server replica${i + 1} 127.0.0.1:${to}`)
  writeFileSync(join(folder, 'replicas.cfg'), [...lines, ...servers, ''].join('\n'))
  const files = ['haproxy.cfg', 'replicas.cfg'].flatMap(name => ['-f', join(folder, name)])
  const child = start(programOf(PROGRAMS.haproxy), ['-db', ...files], { MOEFLUX_BIND: `127.0.0.1:${port}` })
  await listening(port, child)
  return { port, url: `http://127.0.0.1:${port}`, stop: () => stop(child, folder) }
}

function start(program, args, env = {}) {
  const child = spawn(program, args, { env: { ...process.env, PATH, ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  child.output = ''
  child.once('error', ({ message }) => {
    child.output = message // it does not exist, or is none for this machine
  })
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', text => {
      child.output = (child.output + text).slice(-10_000)
    })
  }
  return child
}

async function listening(port, child) {
  const deadline = Date.now() + WAIT_MS
  while (Date.now() < deadline) {
    if (child.exitCode !== null || child.pid === undefined) break
    const isThere = await new Promise(resolve => {
      const socket = connect(port, '127.0.0.1', () => resolve(true)).on('error', () => resolve(false))
      socket.on('connect', () => socket.end())
    })
    if (isThere) return
    await new Promise(resolve => setTimeout(resolve, 30))
  }
  child.kill('SIGKILL')
  throw new Error(`${child.spawnfile} does not listen at ${port}: ${child.output}`)
}

async function stop(child, folder) {
  if (child.exitCode === null && child.signalCode === null) {
    const ended = new Promise(resolve => child.once('exit', resolve))
    child.kill('SIGCONT')
    child.kill('SIGTERM') // nginx ends its workers
    const last = setTimeout(() => child.kill('SIGKILL'), 3_000)
    await ended
    clearTimeout(last)
  }
  rmSync(folder, { recursive: true, force: true })
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [redis, s3] = [await startRedis(), await startS3()]
  console.log(`${redis.url}\n${s3.url}\n  with ${JSON.stringify(s3.env)}\nCtrl-C stops them`)
  await new Promise(resolve => process.once('SIGINT', resolve))
  await Promise.all([redis.stop(), s3.stop()])
}
