// Prompts that are being evaluated now. A request whose prompt begins like one of them waits for the state that will be
// kept there, in place of evaluating the same tokens beside it: clients like to send several requests at once that share
// one long system prompt.
import { commonPrefix } from './prefixMatch.js'
import type { Prompt } from './prompt.js'

const WORTH_WAITING = 32 // tokens

export class Prefills {
  private readonly running = new Set<Prefill>()

  start(prompt: Prompt, from: number): Prefill {
    const prefill = new Prefill(prompt, from, () => this.running.delete(prefill))
    this.running.add(prefill)
    return prefill
  }

  /** Resolves when another prompt has come as far as it shares with `ids`; null where there is nothing to wait for. */
  ahead({ ids, scope }: Prompt, known: number): Promise<void> | null {
    let best: { prefill: Prefill; position: number } | null = null
    for (const prefill of this.running) {
      const position = prefill.scope === scope ? prefill.sharedLanding(ids) : 0
      if (position >= known + WORTH_WAITING && position > (best?.position ?? 0)) best = { prefill, position }
    }
    return best ? best.prefill.reached(best.position) : null
  }
}

export class Prefill {
  private readonly waiting: { position: number; resolve: () => void }[] = []

  constructor(
    private readonly prompt: Prompt,
    private done: number,
    private readonly onEnd: () => void,
  ) {}

  get scope(): string {
    return this.prompt.scope
  }

  /** A state was kept after so many tokens. */
  kept(position: number): void {
    this.done = position
    for (const { position: wanted, resolve } of this.waiting) if (wanted <= position) resolve()
  }

  /** The prompt is evaluated, or given up. */
  end(): void {
    this.onEnd()
    for (const { resolve } of this.waiting) resolve()
  }

  /** The furthest place that a state is still to be kept at and that `ids` have in common; 0 for none. */
  sharedLanding(ids: readonly number[]): number {
    const common = Math.min(commonPrefix(ids, this.prompt.ids), ids.length - 1)
    const landing = this.prompt.landings.findLast(({ position }) => position <= common && position > this.done)
    return landing?.position ?? 0
  }

  reached(position: number): Promise<void> {
    return new Promise(resolve => this.waiting.push({ position, resolve }))
  }
}
