// A small deterministic random generator (xoshiro128**), so that a seed gives the same text on every machine.

export class Random {
  private readonly state = new Uint32Array(4)

  /** Any number is a seed; without one the system's own randomness is taken. */
  constructor(seed?: number) {
    if (seed === undefined) {
      crypto.getRandomValues(this.state)
      this.state[0] |= 1 // the state must not be all zero
      return
    }
    const bits = new Uint32Array(new Float64Array([seed]).buffer)
    let mix = (bits[0] ^ Math.imul(bits[1], 0x9e3779b1)) >>> 0
    for (let i = 0; i < 4; i++) {
      mix = (mix + 0x9e3779b9) >>> 0
      let value = mix
      value = Math.imul(value ^ (value >>> 16), 0x85ebca6b)
      value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35)
      this.state[i] = value ^ (value >>> 16)
    }
    this.state[0] |= 1
  }

  /** Goes on as `other` will. */
  follow(other: Random): void {
    this.state.set(other.state)
  }

  /** Uniform in [0, 1), 53 bits. */
  next(): number {
    const high = this.bits() >>> 5
    const low = this.bits() >>> 6
    return (high * 2 ** 26 + low) / 2 ** 53
  }

  private bits(): number {
    const s = this.state
    const scrambled = Math.imul(s[1], 5)
    const result = Math.imul((scrambled << 7) | (scrambled >>> 25), 9)
    const shifted = s[1] << 9
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= shifted
    s[3] = (s[3] << 11) | (s[3] >>> 21)
    return result >>> 0
  }
}
