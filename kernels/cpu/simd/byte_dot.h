// Dot products of bytes: AVX512_VNNI or AVX_VNNI.
#pragma once

namespace heed::cpu {

/// Whether the processor has them in what isa() allows, and allow_byte_dot() does.
bool has_byte_dot();

/// For tests: without them products have the same bits.
void allow_byte_dot(bool allowed);

}  // namespace heed::cpu
