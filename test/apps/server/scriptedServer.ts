// A server in this process over a scripted model, for tests that decide when the model goes on.
import { connect, type Socket, type TcpNetConnectOpts } from 'node:net'
import { type RunningServer, type ServeOptions, serve } from '#moeflux/apps/server/serve.js'
import { END_TOKEN, type Script, scriptedModel } from '../../support/models/scriptedModel.js'

export interface ScriptedServer extends RunningServer {
  /** The tokens of each step's sequence so far, by sequence. */
  readonly prompts: number[][]
  /** Steps wait from now on; the returned function lets them go on. */
  hold(): () => void
  /** The value of a metric without labels. */
  metric(name: string): Promise<number>
  close(): Promise<void>
}

export async function scriptedServer(
  options: ServeOptions & { readonly template?: string; readonly script?: Script } = {},
): Promise<ScriptedServer> {
  const { template, script = () => END_TOKEN, ...serving } = options
  let gate: Promise<void> | null = null
  const prompts: number[][] = []
  const { model } = await scriptedModel({
    template,
    script: tokens => {
      prompts.push([...tokens])
      return script(tokens)
    },
    onStep: async (_runs, signal) => {
      if (gate === null) return
      const aborted = new Promise<void>(resolve => signal?.addEventListener('abort', () => resolve(), { once: true }))
      await Promise.race([gate, aborted])
    },
  })
  const server = await serve(model, { port: 0, ...serving })
  return {
    ...server,
    prompts,
    hold() {
      let open = () => {}
      gate = new Promise(resolve => {
        open = resolve
      })
      return () => {
        gate = null
        open()
      }
    },
    async metric(name) {
      const text = await (await fetch(`${server.url}/metrics`)).text()
      return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1])
    },
    async close() {
      await server.stop(0)
      await model.close()
    },
  }
}

/** A connection whose other side stays open when this one is closed, and all that came over it. */
export function halfOpenSocket(server: { readonly port: number }): {
  socket: Socket
  text: () => string
  ended: Promise<void>
} {
  const options: TcpNetConnectOpts = { port: server.port, host: '127.0.0.1', allowHalfOpen: true }
  const socket = connect(options)
  let text = ''
  socket.setEncoding('utf8').on('data', chunk => {
    text += chunk
  })
  socket.on('error', () => {})
  const ended = new Promise<void>(resolve => socket.on('end', resolve).on('close', () => resolve()))
  return { socket, text: () => text, ended }
}
