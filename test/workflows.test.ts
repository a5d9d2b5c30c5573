// The workflows of .github/: YAML that parses, jobs and steps of known form, and commands that this repository has.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parseDocument } from 'yaml'
import { repository } from './support/models/packedFiles.js'

interface Step {
  readonly uses?: string
  readonly run?: string
}
interface Job {
  readonly uses?: string
  readonly 'runs-on'?: string
  readonly steps?: readonly Step[]
  readonly strategy?: { readonly matrix: { readonly os: string[]; readonly node: number[] } }
}
interface Workflow {
  readonly on: object
  readonly permissions: object
  readonly jobs: Record<string, Job>
}

const folder = join(repository, '.github/workflows')
const { engines, scripts } = JSON.parse(readFileSync(join(repository, 'package.json'), 'utf8'))

function read(name: string): Workflow {
  const document = parseDocument(readFileSync(join(folder, name), 'utf8'))
  expect([...document.errors, ...document.warnings]).toEqual([])
  return document.toJS()
}

describe.each(readdirSync(folder))('%s', name => {
  const { on, permissions, jobs } = read(name)
  const steps = Object.values(jobs).flatMap(({ steps = [] }) => steps)

  test('says when it runs and what it may do, and has steps of one kind each', () => {
    expect(Object.keys(on).length).toBeGreaterThan(0)
    expect(permissions).toEqual({ contents: 'read' }) // jobs ask for more
    for (const job of Object.values(jobs)) {
      expect(Object.keys(job)).toContain(job.uses === undefined ? 'runs-on' : 'uses')
      expect(job.uses ?? '').toMatch(/^(\.\/\.github\/workflows\/\w+\.yml)?$/)
      if (job.uses !== undefined) expect(existsSync(join(repository, job.uses))).toBe(true)
    }
    for (const { uses, run } of steps) {
      expect([uses, run].filter(value => value !== undefined)).toHaveLength(1)
      if (uses !== undefined) expect(uses).toMatch(/^actions\/[\w-]+@v\d+$/)
    }
  })

  test('runs scripts that exist', () => {
    const commands = steps.map(({ run = '' }) => run).join('\n')
    const files = [...commands.matchAll(/node (scripts\/\S+)/g)].map(([, file]) => file)
    expect(files.filter(file => !existsSync(join(repository, file)))).toEqual([])
    const names = [...commands.matchAll(/npm run (\S+)/g)].map(([, script]) => script)
    expect(names.filter(script => !(script in scripts))).toEqual([])
  })
})

test('the tests run by the commands of the README, on each system and from the oldest Node on', () => {
  const { test: job } = read('ci.yml').jobs
  expect(job.steps?.map(({ run }) => run)).toContain('npm ci && npm test')
  expect(readFileSync(join(repository, '.ci/run'), 'utf8')).toMatch(/^npm ci && npm test$/m)
  expect(job.strategy?.matrix.os).toEqual(['ubuntu-latest', 'macos-latest', 'windows-latest'])
  expect(`>=${job.strategy?.matrix.node[0]}`).toBe(engines.node)
})
