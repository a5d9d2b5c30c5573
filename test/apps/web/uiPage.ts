// What tests of the web UI share: a server with a page at it, and the ways by which a user gets around.

import type { Page } from 'playwright-core'
import { expect } from 'vitest'

export const DOG_STORY = 'Tell me a story about a little dog'

/** Settings that make answers short and the same each time. */
export async function useSettings(page: Page, settings: Record<string, unknown>): Promise<void> {
  await page.addInitScript(text => {
    if (localStorage.getItem('moeflux.settings') === null) localStorage.setItem('moeflux.settings', text)
  }, JSON.stringify(settings))
}

export async function ask(page: Page, text: string): Promise<void> {
  await page.getByLabel('Your message', { exact: true }).last().fill(text)
  await page.getByRole('button', { name: 'Send', exact: true }).click()
}

export async function answered(page: Page, timeout = 30_000): Promise<void> {
  await page.getByRole('button', { name: 'Stop the answer' }).waitFor({ state: 'detached', timeout })
  await expect.poll(() => page.getByRole('button', { name: 'Answer again' }).count()).toBeGreaterThan(0)
}

/** The text of the last answer that is shown. */
export async function lastAnswer(page: Page): Promise<string> {
  return (await page.getByLabel('Answer', { exact: true }).last().locator('.markdown').innerText()).trim()
}

export async function ready(page: Page, timeout = 30_000): Promise<void> {
  await page.locator('.model-button .state.ready').waitFor({ timeout })
}
