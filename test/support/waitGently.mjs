// Dawn asks its device in every turn of the event loop whether it is through. A GPU does not mind; where it is emulated, by the
// driver for Linux on x64, the processors that are to compute ask instead: every millisecond is enough, and a token takes
// half the time.
if (process.platform === 'linux' && process.arch === 'x64') {
  const { setImmediate } = globalThis
  const isDawns = work => Function.prototype.toString.call(work).includes('[native code]')
  const gentle = (work, ...args) => (isDawns(work) ? setTimeout(work, 1) : setImmediate(work, ...args))
  globalThis.setImmediate = Object.assign(gentle, { __promisify__: setImmediate.__promisify__ })
}
