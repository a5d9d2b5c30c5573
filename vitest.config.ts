import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

// Each takes a quarter of a minute or more, the longest first: one of them that begins last would keep everybody waiting.
const LONG = [
  'apps/server/soak.busy',
  'files/remote.gpu',
  'apps/browser/engine.busy',
  'apps/cli/measure.served',
  'apps/browser/engineFaults.busy',
  'apps/server/permits.alone',
  'backends/webgpu/drafts.gpu',
  'engine/goldens.gpu',
  'apps/web/uiTab.busy',
  'apps/cli/package.served',
  'engine/sequences.gpu',
  'apps/browser/webgpuBands.busy',
  'apps/server/replicas.busy',
  'apps/cli/run.served',
  'files/hub/pull.served',
  'apps/web/uiSafety.busy',
  'backends/wasm/positions',
  'backends/webgpu/webgpuBackend.gpu',
  'engine/families.gpu',
  'backends/readFaults.gpu',
  'apps/web/ui.busy',
  'stores/sharedStore',
  'engine/context.gpu',
  'backends/wasm/wasmBackend',
  'samples.alone',
  'apps/server/bodies.served',
  'backends/wasm/kindPositions',
  'engine/nonFinite.gpu',
  'files/hub/runAndPull.served',
  'apps/server/hardening.served',
  'backends/wasm/deaths.alone',
  'apps/server/grammarBombs.served',
  'apps/server/jsonSchema.served',
  'ops/webgpuKernelsKinds.gpu',
  'apps/cli/eval.served',
  'apps/cli/convert.served',
  'backends/wasm/faults.alone',
  'apps/browser/faultWalk.busy',
  'apps/cli/chat.served',
  'apps/cli/inspect.served',
  'apps/server/damagedModel.served',
  'files/folderLock.alone',
  'apps/server/life.busy',
  'files/ggufConvert',
].map(name => `/test/${name}.test.ts`)

// What a file needs is the suffix of its name. Without one, files follow one another in few processes, beside those that wait:
// to start a process and to load the package for each of them took longer than the tests.

// What looks at its own process, or turns clocks, has a process to itself.
const ALONE = ['test/**/*.alone.test.ts']

// What starts commands and servers, whose processes have to themselves whatever they do: these files need none of their own.
const SERVED = ['test/**/*.served.test.ts']

// What keeps both processors busy, or must not be kept waiting: browsers, servers under load, the emulated GPU. Other files wait
// for processes, servers and clocks a good part of their time: three of them fill two processors.
const BUSY = ['test/**/*.busy.test.ts']

// Two processes for all of these, too: a GPU's programs are compiled once in each, which takes seconds where it is emulated.
const GPU = ['test/**/*.gpu.test.ts']

// Projects whose files follow one another in few processes, after all others.
const SHARED = ['gpu', 'served', 'shared']

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification) => {
      const at = LONG.findIndex(name => moduleId.endsWith(name))
      return at < 0 ? LONG.length : at
    }
    // A process is kept only as long as the next file may use it.
    const turn = ({ project }: TestSpecification) => SHARED.indexOf(project.name)
    return (await super.sort(files)).sort((a, b) => turn(a) - turn(b) || rank(a) - rank(b))
  }
}

// Tests import the built package (`#moeflux/...` is dist/), so that worker threads and users run the same files.
export default defineConfig({
  test: {
    passWithNoTests: false,
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 30_000 } },
    pool: 'forks',
    // Node loads dist/ itself, as it does for users: to transform each of its files first took longer than to load them.
    server: { deps: { external: [/\/dist\//] } },
    maxWorkers: 2,
    sequence: { sequencer: LongestFirst },
    setupFiles: ['test/support/removeFolders.ts', 'test/support/compareBytes.ts'],
    projects: [
      { extends: true, test: { name: 'busy', include: BUSY, maxWorkers: 2, sequence: { groupOrder: 0 } } },
      {
        extends: true,
        test: { name: 'gpu', include: GPU, isolate: false, maxWorkers: 2, sequence: { groupOrder: 0 } },
      },
      {
        extends: true,
        test: {
          name: 'alone',
          include: ALONE,
          maxWorkers: 3,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: 'served',
          include: SERVED,
          isolate: false,
          maxWorkers: 3,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: 'shared',
          include: ['test/**/*.test.ts'],
          exclude: [...ALONE, ...SERVED, ...BUSY, ...GPU],
          isolate: false,
          maxWorkers: 3,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
})
