// The headless Chromium that travels with @sparticuz/chromium, unpacked once below node_modules/.cache. The package's own
// way unpacks into the system's temporary folder, where two test files at once see each other's half-made files.
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliDecompressSync } from 'node:zlib'

const repository = join(dirname(fileURLToPath(import.meta.url)), '../../..')

export function unpackChromium() {
  const chromium = join(repository, 'node_modules/@sparticuz/chromium')
  const { version } = JSON.parse(readFileSync(join(chromium, 'package.json'), 'utf8'))
  const cache = join(repository, 'node_modules/.cache')
  const folder = join(cache, `chromium-${version}`)
  if (!existsSync(folder)) {
    mkdirSync(cache, { recursive: true })
    const fresh = mkdtempSync(join(cache, 'chromium-'))
    const read = name => brotliDecompressSync(readFileSync(join(chromium, 'bin', name)))
    for (const name of ['swiftshader', 'al2023', 'fonts']) unpackTar(read(`${name}.tar.br`), fresh)
    writeFileSync(join(fresh, 'fonts.conf'), fontsConfig)
    writeFileSync(join(fresh, 'chromium'), read('chromium.br'), { mode: 0o755 })
    try {
      renameSync(fresh, folder) // whoever comes first; files never look half-made
    } catch {
      rmSync(fresh, { recursive: true, force: true })
    }
  }
  return {
    executable: join(folder, 'chromium'),
    environment: { LD_LIBRARY_PATH: `${folder}:${join(folder, 'lib')}`, FONTCONFIG_FILE: join(folder, 'fonts.conf') },
  }
}

const fontsConfig = `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir prefix="relative">fonts</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>
`

/** Plain files of a tar archive with short names, which is what the package has. */
function unpackTar(tar, folder) {
  for (let at = 0; at + 512 <= tar.length; ) {
    const name = tar.toString('latin1', at, at + 100).replace(/\0.*$/s, '')
    const size = Number.parseInt(tar.toString('latin1', at + 124, at + 136), 8) || 0
    if (name !== '' && !name.endsWith('/')) {
      mkdirSync(dirname(join(folder, name)), { recursive: true })
      writeFileSync(join(folder, name), tar.subarray(at + 512, at + 512 + size), { mode: 0o755 })
    }
    at += 512 + Math.ceil(size / 512) * 512
  }
}
