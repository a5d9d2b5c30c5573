// A barrier in shared memory: [arrived, generation, aborted, unused], 32 bits each. The last to arrive resets the count
// and moves the generation on; the others watch the generation, first awake, then asleep.

export function barrier(address: usize, threads: i32, spins: i32): i32 {
  const generation = atomic.load<i32>(address, 4)
  if (atomic.add<i32>(address, 1) == threads - 1) {
    atomic.store<i32>(address, 0)
    atomic.add<i32>(address, 1, 4)
    atomic.notify(address + 4, -1)
  } else {
    for (let i = 0; i < spins; i++) {
      if (atomic.load<i32>(address, 4) != generation || atomic.load<i32>(address, 8)) break
    }
    while (atomic.load<i32>(address, 4) == generation && !atomic.load<i32>(address, 8)) {
      atomic.wait<i32>(address + 4, generation, -1)
    }
  }
  return atomic.load<i32>(address, 8)
}

export function barrierAbort(address: usize): void {
  atomic.store<i32>(address, 1, 8)
  atomic.add<i32>(address, 1, 4)
  atomic.notify(address + 4, -1)
}
