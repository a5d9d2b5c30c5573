// The files of deploy/: the manifests have the fields that their kinds know and no others, and every flag that they pass is
// one that `moeflux serve` takes.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv } from 'ajv'
import { describe, expect, it } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { moeflux } from '../cli/moeflux.js'
import { repository } from '../support/packedFiles.js'

const read = (name: string) => readFileSync(join(repository, 'deploy', name), 'utf8')
const text = { type: 'string' }
const whole = { type: 'integer' }
const list = (items: object) => ({ type: 'array', items, minItems: 1 })
const open = { type: 'object' }
/** An object with these fields and no others. */
const fields = (properties: Record<string, object>, required: readonly string[] = []) => ({
  type: 'object',
  properties,
  required: [...required],
  additionalProperties: false,
})

const metadata = fields({ name: text, labels: open, annotations: open })
const selector = fields({ matchLabels: { type: 'object', minProperties: 1 } }, ['matchLabels'])
const probe = fields(
  {
    httpGet: fields({ path: { enum: ['/ready', '/health'] }, port: text }, ['path', 'port']),
    periodSeconds: whole,
    failureThreshold: whole,
  },
  ['httpGet'],
)
const container = fields(
  {
    ...{ name: text, image: text, args: list(text), env: list(open), resources: open, securityContext: open },
    ports: list(fields({ name: text, containerPort: whole }, ['containerPort'])),
    ...{ startupProbe: probe, readinessProbe: probe, livenessProbe: probe },
    volumeMounts: list(fields({ name: text, mountPath: text }, ['name', 'mountPath'])),
  },
  ['name', 'image', 'readinessProbe', 'livenessProbe'],
)
const pod = fields(
  {
    terminationGracePeriodSeconds: whole,
    securityContext: open,
    containers: list(container),
    volumes: list({ type: 'object', required: ['name'] }),
  },
  ['containers'],
)
const kind = (apiVersion: string, name: string, spec: object) =>
  fields({ apiVersion: { const: apiVersion }, kind: { const: name }, metadata, spec }, [
    'apiVersion',
    'kind',
    'metadata',
    'spec',
  ])

const KINDS: Record<string, object> = {
  Deployment: kind(
    'apps/v1',
    'Deployment',
    fields({ replicas: whole, selector, strategy: open, template: fields({ metadata, spec: pod }) }, [
      'selector',
      'template',
    ]),
  ),
  Service: kind(
    'v1',
    'Service',
    fields({ selector: open, ports: list(fields({ name: text, port: whole, targetPort: text }, ['port'])) }, ['ports']),
  ),
  PodDisruptionBudget: kind(
    'policy/v1',
    'PodDisruptionBudget',
    fields({ maxUnavailable: whole, selector }, ['selector']),
  ),
  HorizontalPodAutoscaler: kind(
    'autoscaling/v2',
    'HorizontalPodAutoscaler',
    fields(
      {
        scaleTargetRef: fields({ apiVersion: text, kind: { const: 'Deployment' }, name: text }, ['kind', 'name']),
        ...{ minReplicas: whole, maxReplicas: whole, behavior: open },
        metrics: list(
          fields({ type: { const: 'Pods' }, pods: fields({ metric: fields({ name: text }), target: open }) }),
        ),
      },
      ['scaleTargetRef', 'maxReplicas', 'metrics'],
    ),
  ),
  InferencePool: kind(
    'inference.networking.k8s.io/v1',
    'InferencePool',
    fields({ selector, targetPorts: list(fields({ number: whole })), endpointPickerRef: open }, [
      'selector',
      'targetPorts',
    ]),
  ),
}
const service = fields({
  ...{ image: text, command: list(text), environment: open, read_only: { type: 'boolean' }, restart: text },
  build: fields({ context: text, dockerfile: text }),
  ...{ tmpfs: list(text), volumes: list(text), ports: list(text), depends_on: list(text), stop_grace_period: text },
})
const COMPOSE = fields(
  { name: text, 'x-replica': service, services: { type: 'object', additionalProperties: service }, volumes: open },
  ['services'],
)

function problems(schema: object, value: unknown): unknown {
  const validate = new Ajv({ allErrors: true }).compile(schema)
  return validate(value) ? [] : validate.errors
}

describe('deploy', () => {
  it('has manifests of the kinds that they say they are', () => {
    const kinds: string[] = []
    for (const file of readdirSync(join(repository, 'deploy/kubernetes'))) {
      for (const document of parseAllDocuments(read(`kubernetes/${file}`))) {
        expect(document.errors).toEqual([])
        const value = document.toJS()
        kinds.push(value.kind)
        expect([value.kind, problems(KINDS[value.kind], value)]).toEqual([value.kind, []])
      }
    }
    expect(kinds.sort()).toEqual(Object.keys(KINDS).sort())
  })

  it('has a compose file whose services are there', () => {
    const compose = parse(read('compose.yaml'), { merge: true })
    expect(problems(COMPOSE, compose)).toEqual([])
    for (const { depends_on: needed = [] } of Object.values<{ depends_on?: string[] }>(compose.services)) {
      expect(Object.keys(compose.services)).toEqual(expect.arrayContaining(needed))
    }
    // The balancer names the replicas that there are.
    for (const name of read('nginx/replicas.conf').match(/(?<=server )[\w-]+/g) ?? []) {
      expect(Object.keys(compose.services)).toContain(name)
    }
  })

  it('passes flags that the server takes', async () => {
    const { stdout } = await moeflux(['serve', '--help'])
    const all = ['Dockerfile', 'compose.yaml', 'kubernetes/moeflux.yaml'].map(read).join('\n')
    const replicas = all
      .split('\n')
      .filter(line => /--(host|store|grace|drain|allow-host)/.test(line))
      .join('\n')
    const flags = new Set(replicas.match(/--[a-z][a-z-]+/g))
    expect(flags.size).toBeGreaterThan(3)
    for (const flag of flags) expect(stdout).toContain(flag)
  })

  it('has an image of stages that follow each other, run by nobody', () => {
    const docker = read('Dockerfile')
    const stages = [...docker.matchAll(/^FROM \S+ AS (\w+)$/gm)].map(match => match[1])
    for (const [, stage] of docker.matchAll(/--from=(\w+)/g)) expect(stages).toContain(stage)
    expect(docker).toMatch(/^USER 65534:65534$/m)
    expect(docker).toMatch(/^HEALTHCHECK /m)
  })
})
