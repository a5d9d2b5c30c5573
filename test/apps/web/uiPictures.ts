// Pictures of the web UI for the documentation: made where they are missing, or anew with MOEFLUX_SCREENSHOTS=1.
import { existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Locator, Page } from 'playwright-core'
import { repository } from '../../support/models/packedFiles.js'

const FOLDER = join(repository, 'docs/images')
export const SIZES = { desktop: { width: 1360, height: 860 }, phone: { width: 390, height: 844 } }
const SCHEMES = ['light', 'dark'] as const

const fileOf = (view: string, scheme: string, size: string) => join(FOLDER, `${view}-${scheme}-${size}.png`)

/** Of the views, those files that are not there. */
export function missingPictures(...views: string[]): string[] {
  const files = views.flatMap(view =>
    SCHEMES.flatMap(scheme => Object.keys(SIZES).map(size => fileOf(view, scheme, size))),
  )
  return files.filter(file => !existsSync(file))
}

export function arePicturesWanted(...views: string[]): boolean {
  return process.env.MOEFLUX_SCREENSHOTS !== undefined || missingPictures(...views).length > 0
}

/** In light and dark, on a desktop and a phone. `prepare`: before each. `part`: of the page, where not all of it is wanted. */
export async function takePictures(
  page: Page,
  view: string,
  prepare = async () => {},
  part: Page | Locator = page,
): Promise<void> {
  mkdirSync(FOLDER, { recursive: true })
  for (const [size, viewport] of Object.entries(SIZES)) {
    await page.setViewportSize(viewport)
    for (const scheme of SCHEMES) {
      await page.emulateMedia({ colorScheme: scheme })
      await prepare()
      await page.waitForTimeout(150)
      await part.screenshot({ path: fileOf(view, scheme, size) })
    }
  }
  await page.setViewportSize(SIZES.desktop)
}
