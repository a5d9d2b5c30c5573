// By bits: shaders may be compiled as if no value were ever NaN or infinite.
fn notFinite(bits: u32) -> u32 { return select(0u, 1u, (bits & 0x7f800000u) == 0x7f800000u); }
