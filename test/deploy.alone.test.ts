// The files of deploy/: manifests and compose file against the schemas of their projects (test/data/schemas), and every flag that
// they pass is one that `moeflux serve` takes.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv, type ValidateFunction } from 'ajv'
import { describe, expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { moeflux } from './apps/cli/moeflux.js'
import { repository } from './support/models/packedFiles.js'

const read = (name: string) => readFileSync(join(repository, 'deploy', name), 'utf8')
const schema = (name: string) => JSON.parse(readFileSync(join(repository, 'test/data/schemas', name), 'utf8'))

const text = { type: 'string' }
/** An object with these fields and no others. */
const fields = (properties: Record<string, object>, required = Object.keys(properties)) => ({
  type: 'object',
  properties,
  required,
  additionalProperties: false,
})
const number = fields({ number: { type: 'integer' } })
const INFERENCE_POOL = fields({
  ...{ apiVersion: text, kind: text, metadata: { type: 'object' } },
  spec: fields({
    selector: fields({ matchLabels: { type: 'object', minProperties: 1 } }),
    targetPorts: { type: 'array', items: number, minItems: 1 },
    endpointPickerRef: fields({ name: text, port: number }),
  }),
})

/** Fields that a kind does not know are refused, as the API server does when it is asked to be strict. */
function strict(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(strict)
  if (value === null || typeof value !== 'object') return value
  const own = value as Record<string, unknown>
  if (own.format === 'int-or-string') return { type: ['integer', 'string'] }
  const all = Object.fromEntries(Object.entries(own).map(([key, part]) => [key, strict(part)]))
  return own.type === 'object' && own.properties ? { ...all, additionalProperties: false } : all
}

const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: true })
ajv.addSchema(strict(schema('kubernetes-1.27.json')) as object, 'kubernetes')
const kubernetes = (name: string) => ajv.compile({ $ref: `kubernetes#/definitions/io.k8s.api.${name}` })
const KINDS: Record<string, ValidateFunction> = {
  'apps/v1 Deployment': kubernetes('apps.v1.Deployment'),
  'v1 Service': kubernetes('core.v1.Service'),
  'policy/v1 PodDisruptionBudget': kubernetes('policy.v1.PodDisruptionBudget'),
  'autoscaling/v2 HorizontalPodAutoscaler': kubernetes('autoscaling.v2.HorizontalPodAutoscaler'),
  'inference.networking.k8s.io/v1 InferencePool': ajv.compile(INFERENCE_POOL),
}
const { $schema: _, ...composeSchema } = schema('compose-spec.json') // draft 7 by a name that Ajv does not know
const isCompose = ajv.compile(composeSchema)

const manifests = readdirSync(join(repository, 'deploy/kubernetes'))
  .flatMap(file => parseAllDocuments(read(`kubernetes/${file}`)))
  .map(document => {
    expect(document.errors).toEqual([])
    const value = document.toJS()
    return { kind: `${value.apiVersion} ${value.kind}`, value }
  })
const compose = parse(read('compose.yaml'), { merge: true })

function problems(validate: ValidateFunction, value: unknown): unknown {
  return validate(value) ? [] : validate.errors
}

type Tree = Record<string, unknown> | unknown[]

/** The value once for each of its fields, with a letter too many in the name of that one. */
function* misspelt(value: unknown, path: readonly string[] = []): Generator<{ path: string; value: unknown }> {
  if (value === null || typeof value !== 'object') return
  for (const [key, part] of Object.entries(value as Tree)) {
    if (!Array.isArray(value)) {
      const { [key]: _, ...others } = value as Record<string, unknown>
      yield { path: [...path, key].join('.'), value: { ...others, [`${key}s`]: part } }
    }
    for (const inner of misspelt(part, [...path, key])) {
      const copy: Tree = Array.isArray(value) ? [...value] : { ...value }
      Object.assign(copy, { [key]: inner.value })
      yield { path: inner.path, value: copy }
    }
  }
}

const unnoticed = (validate: ValidateFunction, value: unknown) =>
  [...misspelt(value)].filter(broken => validate(broken.value)).map(({ path }) => path)

describe('deploy', () => {
  test('has manifests of the kinds that they say they are', () => {
    for (const { kind, value } of manifests) expect([kind, problems(KINDS[kind], value)]).toEqual([kind, []])
    expect(manifests.map(({ kind }) => kind).sort()).toEqual(Object.keys(KINDS).sort())
  })

  test('has no field that could be misspelt without being noticed, but for names that are free', () => {
    const free = /(^|\.)(labels|annotations|matchLabels|requests|limits)\.[^.]*(\.[^.]*)*$/
    for (const { kind, value } of manifests) {
      expect([...misspelt(value)].length).toBeGreaterThan(8)
      const passed = unnoticed(KINDS[kind], value).filter(path => !free.test(path) && path !== 'spec.selector.app')
      expect([kind, passed]).toEqual([kind, kind.endsWith('InferencePool') ? ['metadata.name'] : []])
    }
    const ofCompose = /^(x-replica(\.|$)|(services|volumes)\.[^.]+$|services\.[^.]+\.environment\.)/
    expect(unnoticed(isCompose, compose).filter(path => !ofCompose.test(path))).toEqual([])
  })

  test('would not pass with values of another type', () => {
    const [deployment] = manifests.filter(({ kind }) => kind === 'apps/v1 Deployment')
    const { spec } = deployment.value
    for (const broken of [{ replicas: 'two' }, { selector: undefined }, { template: { spec: { containers: [{}] } } }]) {
      const value = JSON.parse(JSON.stringify({ ...deployment.value, spec: { ...spec, ...broken } }))
      expect(problems(KINDS[deployment.kind], value), JSON.stringify(broken)).not.toEqual([])
    }
    expect(problems(isCompose, { services: { one: { image: 7 } } })).not.toEqual([])
  })

  test('has a compose file whose services are there', () => {
    expect(problems(isCompose, compose)).toEqual([])
    for (const { depends_on: needed = [] } of Object.values<{ depends_on?: string[] }>(compose.services)) {
      expect(Object.keys(compose.services)).toEqual(expect.arrayContaining(needed))
    }
    // The balancer names the replicas that there are.
    for (const name of read('nginx/replicas.conf').match(/(?<=server )[\w-]+/g) ?? []) {
      expect(Object.keys(compose.services)).toContain(name)
    }
  })

  test('passes flags that the server takes', async () => {
    const { stdout } = await moeflux(['serve', '--help'])
    const files = ['Dockerfile', 'compose.yaml', 'kubernetes/moeflux.yaml', 'services/moeflux.service']
    const all = files.map(read).join('\n')
    const replicas = all
      .split('\n')
      .filter(line => /--(host|store|grace|drain|allow-host)/.test(line))
      .join('\n')
    const flags = new Set(replicas.match(/--[a-z][a-z-]+/g))
    expect(flags.size).toBeGreaterThan(3)
    for (const flag of flags) expect(stdout).toContain(flag)
  })

  test('has units whose commands are those of the command line', async () => {
    const [, exec] = /^ExecStart=\/usr\/bin\/env moeflux (.*)$/m.exec(read('services/moeflux.service')) ?? []
    expect(exec).toMatch(/^serve --/)
    const plist = read('services/moeflux.plist')
    const programs = /<key>ProgramArguments<\/key>\s*<array>([\s\S]*?)<\/array>/.exec(plist)?.[1] ?? ''
    const words = [...programs.matchAll(/<string>([^<]*)<\/string>/g)].map(([, word]) => word)
    expect(words.slice(0, 3)).toEqual(['/usr/bin/env', 'moeflux', 'serve'])
    const { stdout } = await moeflux(['serve', '--help'])
    for (const flag of words.filter(word => word.startsWith('--'))) expect(stdout).toContain(flag)
    const opened = [...plist.matchAll(/<(\w+)>/g)].map(([, name]) => name)
    const closed = [...plist.matchAll(/<\/(\w+)>/g)].map(([, name]) => name)
    expect([...opened, 'plist'].sort()).toEqual(closed.sort()) // the outermost has an attribute
  })

  test('names its compose file in every command, and leaves out of an image what it makes anew', () => {
    const pages = ['deploy/compose.yaml', 'docs/deploy.md', 'docs/install.md'].map(name =>
      readFileSync(join(repository, name), 'utf8'),
    )
    const commands = pages.flatMap(page => page.match(/docker compose .*/g) ?? [])
    expect(commands.length).toBeGreaterThan(3)
    for (const command of commands) expect(command).toMatch(/^docker compose -f deploy\/compose\.yaml /)
    const ignored = readFileSync(join(repository, '.dockerignore'), 'utf8').split('\n')
    expect(ignored).toEqual(expect.arrayContaining(['.git', 'dist', 'node_modules']))
  })

  test('has an image of stages that follow each other, run by nobody', () => {
    const docker = read('Dockerfile')
    const stages = [...docker.matchAll(/^FROM \S+ AS (\w+)$/gm)].map(match => match[1])
    for (const [, stage] of docker.matchAll(/--from=(\w+)/g)) expect(stages).toContain(stage)
    expect(docker).toMatch(/^USER 65534:65534$/m)
    expect(docker).toMatch(/^HEALTHCHECK /m)
  })
})
