import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

// Each takes half a minute or more: one of them that begins last would keep everybody waiting.
const LONG = [
  'server/soak',
  'backend/webgpuLayerKinds',
  'model/families',
  'model/perplexity',
  'model/sequences',
  'backend/webgpuBackend',
  'browser/engineFaults',
  'model/goldens',
  'browser/engine',
  'browser/uiTab',
  'backend/readFaults',
  'cli/measure',
  'model/nonFinite',
  'backend/wasmPositions',
  'browser/webgpuBands',
  'hub/pull',
  'hub/runAndPull',
  'backend/webgpuKernelsKinds',
  'server/replicas',
].map(name => `/test/${name}.test.ts`)

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification) => {
      const at = LONG.findIndex(name => moduleId.endsWith(name))
      return at < 0 ? LONG.length : at
    }
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b))
  }
}

// Tests import the built package (`#moeflux/...` is dist/), so that worker threads and users run the same files.
export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    passWithNoTests: false,
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 10_000 } },
    pool: 'forks',
    maxWorkers: 2,
    sequence: { sequencer: LongestFirst },
  },
})
