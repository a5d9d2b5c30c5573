// What a step tells the kernels of a token. index: in its run. pages: where the run's page list
// begins. firstRow: the first position that the head for drafts has a row of.
struct Token { id: u32, position: u32, run: u32, index: u32, pages: u32, stateIn: u32, stateOut: u32, firstRow: u32 }
