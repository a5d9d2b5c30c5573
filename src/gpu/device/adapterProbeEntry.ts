// The process that nodeAdapterProbe.ts starts: asks for the adapter, prints what it found as one line of JSON, and ends.
import { probeAdapters } from './gpuDevice.js'

process.stdout.write(`\n${JSON.stringify(await probeAdapters())}\n`, () => process.exit())
