// The life of a slot that experts are read into, and of the staging buffers by which bytes reach slots outside the host's
// memory. Pure: it moves no bytes and waits for nothing; whoever does tells it what has happened, and a step that cannot
// be throws. Everything else about slots (which expert, who is evicted, who waits) is built on these rules:
//
//   slot      empty ─claim→ asked ─arrive→ ready ─evict→ empty
//                           asked ─callOff→ empty                       its read had not begun
//                           asked ─fail→ failed ─last unpin→ empty      somebody waits for it and must see that
//                           asked ─fail→ empty                          nobody does
//   staging   free ─begin→ filling ─arrive→ filled ─submit→ copying ─mapped→ free
//                          filling ─fail→ free                          it is still mapped
//             any ─lose→ gone                                           the device is
//
// A slot that is asked for, failed or pinned is never given away. A staging buffer is free only while it is mapped, which
// is never while the GPU may still copy from it. In memory that readers write directly there are no staging buffers.

export const slotState = { empty: 0, asked: 1, ready: 2, failed: 3 } as const
export const stagingState = { free: 0, filling: 1, filled: 2, copying: 3, gone: 4 } as const

const slotNames = Object.keys(slotState)
const stagingNames = Object.keys(stagingState)

export class SlotLife {
  private readonly slotStates: Uint8Array // [slots]
  private readonly pins: Int32Array // [slots]
  private readonly fills: Int32Array // [slots], the staging buffer that is filled for it; -1: none
  private readonly stagingStates: Uint8Array // [staging buffers]
  private readonly free: number[] // staging buffers

  constructor(slots: number, stagingBuffers = 0) {
    this.slotStates = new Uint8Array(slots)
    this.pins = new Int32Array(slots)
    this.fills = new Int32Array(slots).fill(-1)
    this.stagingStates = new Uint8Array(stagingBuffers)
    this.free = Array.from({ length: stagingBuffers }, (_, i) => i)
  }

  // --- slots -------------------------------------------------------------------------------------------------------

  stateOf(slot: number): number {
    return this.slotStates[slot]
  }

  pinsOf(slot: number): number {
    return this.pins[slot]
  }

  mayEvict(slot: number): boolean {
    return this.slotStates[slot] === slotState.ready && this.pins[slot] === 0
  }

  /** A read into it is asked for. */
  claim(slot: number): void {
    this.slotFrom(slot, slotState.empty, 'claim')
    this.slotStates[slot] = slotState.asked
  }

  /** The read is taken back before it begins. */
  callOff(slot: number): void {
    this.slotFrom(slot, slotState.asked, 'call off')
    if (this.fills[slot] >= 0) throw this.wrong(slot, 'call off', 'its read has begun')
    if (this.pins[slot] > 0) throw this.wrong(slot, 'call off', 'somebody waits for it')
    this.slotStates[slot] = slotState.empty
  }

  /** Its bytes are there, or in a staging buffer that is then filled. */
  arrive(slot: number): void {
    this.slotFrom(slot, slotState.asked, 'arrive in')
    if (this.stagingStates.length > 0 && this.fills[slot] < 0 && !this.isLost) {
      throw this.wrong(slot, 'arrive in', 'no staging buffer was filled for it')
    }
    this.endFilling(slot, stagingState.filled)
    this.slotStates[slot] = slotState.ready
  }

  /** Its read failed. Whether the slot is empty already: else when the last of those who wait has seen that. */
  fail(slot: number): boolean {
    this.slotFrom(slot, slotState.asked, 'fail in')
    this.endFilling(slot, stagingState.free)
    this.slotStates[slot] = this.pins[slot] > 0 ? slotState.failed : slotState.empty
    return this.pins[slot] === 0
  }

  evict(slot: number): void {
    this.slotFrom(slot, slotState.ready, 'evict')
    if (this.pins[slot] > 0) throw this.wrong(slot, 'evict', 'it is pinned')
    this.slotStates[slot] = slotState.empty
  }

  pin(slot: number): void {
    const state = this.slotStates[slot]
    if (state !== slotState.asked && state !== slotState.ready) throw this.wrong(slot, 'pin', 'nothing comes into it')
    this.pins[slot]++
  }

  /** Whether that has emptied the slot: its read had failed. */
  unpin(slot: number): boolean {
    if (this.pins[slot] === 0) throw this.wrong(slot, 'unpin', 'it is not pinned')
    this.pins[slot]--
    if (this.pins[slot] > 0 || this.slotStates[slot] !== slotState.failed) return false
    this.slotStates[slot] = slotState.empty
    return true
  }

  // --- staging buffers ---------------------------------------------------------------------------------------------

  stagingStateOf(buffer: number): number {
    return this.stagingStates[buffer]
  }

  get stagingBuffers(): number {
    return this.stagingStates.length
  }

  get freeStaging(): number {
    return this.free.length
  }

  get isLost(): boolean {
    return this.stagingStates.length > 0 && this.stagingStates.every(state => state === stagingState.gone)
  }

  /** A free staging buffer for the read into a slot that was asked for; -1 where there is none now. */
  begin(slot: number): number {
    this.slotFrom(slot, slotState.asked, 'begin a read into')
    if (this.fills[slot] >= 0) throw this.wrong(slot, 'begin a read into', 'it has begun')
    const buffer = this.free.pop() ?? -1
    if (buffer < 0) return -1
    this.stagingStates[buffer] = stagingState.filling
    this.fills[slot] = buffer
    return buffer
  }

  /** The copy out of it is submitted. */
  submit(buffer: number): void {
    this.stagingStep(buffer, stagingState.filled, stagingState.copying, 'submit')
  }

  /** The GPU has done with it, and it is mapped again. */
  mapped(buffer: number): void {
    if (this.stagingStep(buffer, stagingState.copying, stagingState.free, 'map')) this.free.push(buffer)
  }

  /** The device is gone, and with it what was mapped. */
  lose(): void {
    this.free.length = 0
    this.stagingStates.fill(stagingState.gone)
    this.fills.fill(-1)
  }

  private endFilling(slot: number, state: number): void {
    const buffer = this.fills[slot]
    if (buffer < 0) return
    this.fills[slot] = -1
    this.stagingStates[buffer] = state
    if (state === stagingState.free) this.free.push(buffer)
  }

  private slotFrom(slot: number, state: number, what: string): void {
    if (this.slotStates[slot] !== state) throw this.wrong(slot, what, `it is ${slotNames[this.slotStates[slot]]}`)
  }

  /** False: the buffer is gone, and nothing that happens to it counts. */
  private stagingStep(buffer: number, from: number, to: number, what: string): boolean {
    const state = this.stagingStates[buffer]
    if (state === stagingState.gone) return false
    if (state !== from) throw new Error(`cannot ${what} staging buffer ${buffer}: it is ${stagingNames[state]}`)
    this.stagingStates[buffer] = to
    return true
  }

  private wrong(slot: number, what: string, why: string): Error {
    return new Error(`cannot ${what} slot ${slot}: ${why}`)
  }
}
