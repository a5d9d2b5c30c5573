// Where the time of a layer goes whose missing experts the host computes, as the thread sees it that leads the token.

export class HelpTimes {
  private readonly ms = { wait: 0, begin: 0, compute: 0 }

  /**
   * Milliseconds from the submission until the choice came back; from there until the host's threads and the GPU had their work
   * and the next commands were recorded; and from there until the host's rows were there.
   */
  add(wait: number, begin: number, compute: number): void {
    this.ms.wait += wait
    this.ms.begin += begin
    this.ms.compute += compute
  }

  get seconds(): Readonly<Record<string, number>> {
    const { wait, begin, compute } = this.ms
    return {
      'helped layers: GPU': wait / 1000,
      'helped layers: begin': begin / 1000,
      'helped layers: processors': compute / 1000,
    }
  }
}
