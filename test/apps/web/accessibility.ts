// What axe-core finds on a page.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import type { Page } from 'playwright-core'

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** Serious and critical findings. */
export async function findings(page: Page): Promise<string[]> {
  await page.evaluate(axeSource)
  return await page.evaluate(async () => {
    const { axe } = globalThis as unknown as { axe: { run(): Promise<{ violations: Violation[] }> } }
    interface Violation {
      readonly id: string
      readonly impact: string
      readonly nodes: readonly { readonly html: string; readonly failureSummary: string }[]
    }
    const { violations } = await axe.run()
    return violations
      .filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`))
  })
}
