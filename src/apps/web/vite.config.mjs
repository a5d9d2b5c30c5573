// Bundles the web UI into dist/apps/web. It is built from the compiled package (`#moeflux/...` is dist/), as users would.
import { createHash } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { defineConfig } from 'vite'
import { notePackages, packagesOf } from '../../../scripts/thirdParty.mjs'

const root = fileURLToPath(new URL('.', import.meta.url))

const QUIET = { bundlerTimings: false } // which are news of slow machines only

/**
 * KaTeX as this page can use it. Every browser that runs the page reads WOFF2: the same fonts in older formats are left out.
 * And styles are set as properties, as it does nearly everywhere: the page's CSP takes none from attributes.
 */
function fitKatex() {
  const olderFonts = /, ?url\([^)]+\.(?:woff|ttf)\) format\("\w+"\)/g
  const attribute = 'node.setAttribute(attr, this.attributes[attr]);'
  const property = `if (attr === 'style') node.style.cssText = this.attributes[attr]; else ${attribute}`
  return {
    name: 'moeflux-katex',
    enforce: 'pre',
    transform(code, id) {
      if (id.endsWith('/katex.css')) return code.replaceAll(olderFonts, '')
      return id.endsWith('/katex.mjs') ? code.replaceAll(attribute, property) : null
    },
  }
}

/**
 * uPlot writes numbers in the browser's language, and ends where that is no language: Chromium says en-US@posix where LANG is C.
 * The rest of the page writes them in English.
 */
function fitUplot() {
  const browsers = "new Intl.NumberFormat(domEnv ? nav.language : 'en-US')"
  return {
    name: 'moeflux-uplot',
    enforce: 'pre',
    transform(code, id) {
      if (!id.endsWith('/uPlot.esm.js')) return null
      if (!code.includes(browsers)) throw new Error('uPlot chooses its language elsewhere now: see fitUplot')
      return code.replace(browsers, "new Intl.NumberFormat('en')")
    },
  }
}

/** What only some visits need; kept on the device once it was asked for. */
const ON_DEMAND = /katex/i

/** Tells the service worker which files make up this build. */
function precache() {
  return {
    name: 'moeflux-precache',
    enforce: 'post',
    generateBundle(_, bundle) {
      const worker = Object.values(bundle).find(chunk => chunk.fileName === 'sw.js')
      // The page asks for no grammars: their worker, half of all bytes, is not worth keeping.
      const files = Object.keys(bundle).filter(name => name !== 'sw.js' && !/\.map$|grammar\.worker/.test(name))
      const names = ['./', ...files.filter(name => name !== 'index.html').map(name => `./${name}`), './icon.svg'].sort()
      const contents = Object.values(bundle).map(chunk => chunk.code ?? chunk.source)
      const version = createHash('sha256').update(contents.map(String).join('\0')).digest('hex').slice(0, 12)
      worker.code = worker.code
        .replace('__PRECACHE__', JSON.stringify(names.filter(name => !ON_DEMAND.test(name))))
        .replace('__ON_DEMAND__', JSON.stringify(names.filter(name => ON_DEMAND.test(name))))
        .replace('__VERSION__', version)
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
  plugins: [fitKatex(), fitUplot(), precache(), reportSize(), noteBundled()],
  worker: { format: 'es', plugins: () => [noteBundled()], rollupOptions: { checks: QUIET } },
  build: {
    outDir: fileURLToPath(new URL('../../../dist/apps/web', import.meta.url)),
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
