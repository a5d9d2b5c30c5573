import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

// Each takes a quarter of a minute or more, the longest first: one of them that begins last would keep everybody waiting.
const LONG = [
  'server/soak',
  'model/remote',
  'browser/engine',
  'cli/measure',
  'browser/engineFaults',
  'backend/webgpuDrafts',
  'model/goldens',
  'browser/uiTab',
  'cli/package',
  'model/sequences',
  'browser/webgpuBands',
  'server/replicas',
  'cli/run',
  'hub/pull',
  'browser/uiSafety',
  'backend/wasmPositions',
  'backend/webgpuBackend',
  'model/families',
  'backend/readFaults',
  'browser/ui',
  'threads/sharedStore',
  'model/context',
  'backend/wasmBackend',
  'examples/samples',
  'server/bodies',
  'backend/wasmKindPositions',
  'model/nonFinite',
  'hub/runAndPull',
  'server/hardening',
  'backend/wasmDeaths',
  'server/grammarBombs',
  'server/jsonSchema',
  'backend/webgpuKernelsKinds',
  'cli/eval',
  'cli/convert',
  'backend/wasmFaults',
  'browser/faultWalk',
  'cli/chat',
  'cli/inspect',
  'server/damagedModel',
  'process/folderLock',
  'server/life',
  'disk/ggufConvert',
].map(name => `/test/${name}.test.ts`)

// These follow one another in few processes, beside those that wait: to start one and to load the package for each of them
// took longer than the tests. What looks at its own process, or turns clocks, is in test/process: it has a process to
// itself, as all others do.
const TOGETHER = [
  'test/{unit,disk,threads}/*.test.ts',
  // wasmFaults counts the threads and files of its process.
  'test/backend/{checkedReads,draftFaults,drafts,hostWorkers,kindPoison,reference*,streamerReaders}.test.ts',
  'test/backend/wasm{B,K,L,P}*.test.ts',
]

// What starts commands and servers, whose processes have to themselves whatever they do: these files need none of their own.
// severalModels reads how much memory its process takes.
const SERVED = ['test/{ai,cli,hub}/*.test.ts', 'test/server/!(severalModels).test.ts']

// What keeps both processors busy, or must not be kept waiting: browsers, servers under load, the emulated GPU. Other files wait
// for processes, servers and clocks a good part of their time: three of them fill two processors.
const BUSY = ['test/browser/*.test.ts', 'test/server/{soak,replicas,life}.test.ts']

// Two processes for all of these, too: a GPU's programs are compiled once in each, which takes seconds where it is emulated.
const GPU = [
  'test/model/*.test.ts',
  'test/backend/webgpu*.test.ts',
  'test/backend/{chunkRoom,faultWalk,gpuSizes,leastExperts,readFaults,smallGpu}.test.ts',
]

// Projects whose files follow one another in few processes, after all others.
const SHARED = ['gpu', 'served', 'together']

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
      { extends: true, test: { name: 'alone', include: BUSY, maxWorkers: 2, sequence: { groupOrder: 0 } } },
      {
        extends: true,
        test: { name: 'gpu', include: GPU, isolate: false, maxWorkers: 2, sequence: { groupOrder: 0 } },
      },
      {
        extends: true,
        test: {
          name: 'waiting',
          include: ['test/**/*.test.ts'],
          exclude: [...BUSY, ...GPU, ...SERVED, ...TOGETHER],
          maxWorkers: 3,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: 'served',
          include: SERVED,
          exclude: BUSY,
          isolate: false,
          maxWorkers: 3,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: 'together',
          include: TOGETHER,
          isolate: false,
          maxWorkers: 3,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
})
