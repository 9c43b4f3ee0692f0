// Tensors to and from NumPy's files: .npy, one array, and .npz, named ones as numpy.savez writes them.
#pragma once

#include <string>
#include <string_view>

#include <heed/core/serialize.h>
#include <heed/core/tensor.h>

namespace heed {

/// The array of a .npy file, on the CPU, row-major. Types that heed lacks become wider ones: f2 f32, i1, i2,
/// u1 and u2 i32, u4 and u8 i64. IoError; CheckpointError where the file is not sound, or holds another type
/// (complex, texts, objects, big-endian numbers).
Tensor load_npy(const std::string& path);
/// The same from the bytes of such a file, which `file` names in messages.
Tensor parse_npy(std::string_view bytes, const std::string& file);
/// All arrays of a .npz file, not compressed, in its order. Errors as above.
NamedTensors load_npz(const std::string& path);

/// Write them, whole or not at all, from any device, contiguous or not; bf16, which NumPy lacks, as f32.
/// ConfigError for a name that is empty, used twice or has a '/'.
void save_npy(const std::string& path, const Tensor& tensor);
void save_npz(const std::string& path, const NamedTensors& tensors);

}  // namespace heed
