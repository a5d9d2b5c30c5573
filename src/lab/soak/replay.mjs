// One request of a soak alone, against a server of its own with whole files: what came back, and whether that is right.
import { exchange } from '../harness/exchange.mjs'
import { startServer } from '../harness/serverProcess.mjs'
import { judge } from './judge.mjs'
import { serverArguments } from './run.mjs'
import { makeRequest } from './traffic.mjs'

export async function replay(world, options, id) {
  const request = findRequest(world, options, id)
  const server = await startServer({ folder: world.folder, args: serverArguments(world, options) })
  const reply = await exchange({ port: server.port, ...request, limitMs: 120_000 })
  const during = { isFileBroken: false, isStopping: false, secretPath: world.folder }
  const { label, problem } = judge(request, reply, during)
  console.log({ id, kind: request.kind, what: request.what, path: request.path, manner: request.manner })
  console.log(request.body?.toString().slice(0, 2000))
  console.log({
    status: reply.status,
    end: reply.end,
    error: reply.error,
    milliseconds: reply.milliseconds,
    label,
    problem,
  })
  console.log(reply.text.slice(0, 2000))
  const { code, isKilled } = await server.stop(10_000)
  process.exitCode = problem === null && code === 0 && !isKilled ? 0 : 1
}

function findRequest(world, { seed }, id) {
  const [client, turn] = id.split('.')
  if (client !== 'rest') return makeRequest(world, seed, client, Number(turn))
  const entry = world.catalogue[Number(turn)]
  const body = Buffer.from(JSON.stringify(entry.body))
  const headers = { 'content-type': 'application/json' }
  return { id, kind: 'at rest', method: 'POST', path: entry.path, headers, body, manner: {}, statuses: [200], entry }
}
