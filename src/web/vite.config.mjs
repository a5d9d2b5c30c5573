// Bundles the web UI into dist/web. It is built from the compiled package (`#moeflux/...` is dist/), as users would.
import { createHash } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { defineConfig } from 'vite'
import { notePackages, packagesOf } from '../../scripts/thirdParty.mjs'

const root = fileURLToPath(new URL('.', import.meta.url))

const QUIET = { bundlerTimings: false } // which are news of slow machines only

/** Tells the service worker which files make up this build. */
function precache() {
  return {
    name: 'moeflux-precache',
    enforce: 'post',
    generateBundle(_, bundle) {
      const worker = Object.values(bundle).find(chunk => chunk.fileName === 'sw.js')
      // The page asks for no grammars: their worker, half of all bytes, is not worth keeping.
      const files = Object.keys(bundle).filter(name => name !== 'sw.js' && !/\.map$|grammar\.worker/.test(name))
      const names = ['./', ...files.filter(name => name !== 'index.html').map(name => `./${name}`), './icon.svg']
      const contents = Object.values(bundle).map(chunk => chunk.code ?? chunk.source)
      const version = createHash('sha256').update(contents.map(String).join('\0')).digest('hex').slice(0, 12)
      worker.code = worker.code.replace('__PRECACHE__', JSON.stringify(names.sort())).replace('__VERSION__', version)
    },
  }
}

/** One line with what a first visit downloads. */
function reportSize() {
  return {
    name: 'moeflux-size',
    writeBundle(_, bundle) {
      const sizes = Object.values(bundle).map(chunk => {
        const bytes = Buffer.from(chunk.code ?? chunk.source)
        return [bytes.length, gzipSync(bytes).length]
      })
      const total = sizes.reduce(([a, b], [c, d]) => [a + c, b + d], [0, 0])
      const kib = bytes => `${(bytes / 1024).toFixed(0)} KiB`
      console.log(`web UI: ${sizes.length} files, ${kib(total[0])}, ${kib(total[1])} gzipped`)
    },
  }
}

/** Notes whose code the page and its workers hold, for the list of licences. */
const bundled = new Set()
function noteBundled() {
  return {
    name: 'moeflux-bundled',
    generateBundle(_, bundle) {
      for (const name of packagesOf(Object.values(bundle))) bundled.add(name)
    },
    closeBundle: () => notePackages('web', [...bundled].sort()),
  }
}

export default defineConfig({
  root,
  base: './',
  publicDir: 'public',
  logLevel: 'warn',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  plugins: [precache(), reportSize(), noteBundled()],
  worker: { format: 'es', plugins: () => [noteBundled()], rollupOptions: { checks: QUIET } },
  build: {
    outDir: fileURLToPath(new URL('../../dist/web', import.meta.url)),
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 4000,
    rollupOptions: {
      checks: QUIET,
      input: { index: `${root}index.html`, sw: `${root}serviceWorker.ts` },
      output: {
        entryFileNames: chunk => (chunk.name === 'sw' ? 'sw.js' : 'assets/[name]-[hash].js'),
      },
    },
  },
})
