// Where experts are, where tokens found theirs, and which side computed them. Only where a GPU and memory share the work.
import type { EngineHistory } from '../state/engineHistory.js'
import * as format from '../ui/format.js'
import { ShareBar } from './shareBar.js'

export function TiersPanel({ history }: { history: EngineHistory }) {
  const tiers = history.frame?.stats.tiers
  if (!tiers) return null
  const { gpu, memory, disk } = tiers
  const inMemory = history.resident.reduce((sum, bit) => sum + bit, 0)
  const slots = ({ used, slots }: { used: number; slots: number }) =>
    `${format.count(used)} of ${format.count(slots)} slots`
  return (
    <section class="panel tiers" aria-label="Tiers">
      <h2>Experts on the GPU, in memory and on disk</h2>
      <div class="tiers-bars">
        <ShareBar
          label="Where they are"
          parts={[
            { key: 'gpu', name: 'GPU', value: gpu.used, note: slots(gpu) },
            { key: 'memory', name: 'memory alone', value: Math.max(0, inMemory - gpu.used), note: slots(memory) },
            { key: 'disk', name: 'disk alone', value: history.resident.length - inMemory },
          ]}
        />
        <ShareBar
          label="Where tokens found theirs"
          parts={[
            { key: 'gpu', name: 'GPU', value: gpu.hits },
            { key: 'memory', name: 'memory', value: memory.hits },
            { key: 'disk', name: 'disk', value: disk.hits },
          ]}
        />
        <ShareBar
          label="Who computed them"
          parts={[
            { key: 'gpu', name: 'GPU', value: tiers.computedOnGpu },
            { key: 'memory', name: 'processors', value: tiers.computedOnCpu },
          ]}
        />
      </div>
      <p class="panel-note">
        Went to the GPU: {format.count(tiers.promotions)} because they are used often, {format.count(tiers.uploads)} for
        prompts; read again after they left it: {format.count(tiers.refills)}
      </p>
    </section>
  )
}
