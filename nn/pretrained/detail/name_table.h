// How a family of models names its weights in files, and what a file has of a model.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heed/core/io/gguf.h>
#include <heed/core/serialize.h>
#include <heed/nn/attention/multi_head_attention.h>
#include <heed/nn/module.h>
#include <heed/nn/weights.h>

namespace heed::nn::detail {

/// Rows of a parameter: all, or those of attention's stacked projection that make queries, keys or values.
enum class Part { whole, query, key, value };

/// How a file has them: as they are, as [in, out], as [1, n], or with the two halves of each head's rows
/// interleaved, as llama.cpp wants them for rotary positions.
enum class Stored { as_is, transposed, row, interleaved_halves };

/// A tensor of a file and the parameter that it is, or is a part of. In both names * stands for the same
/// number. A name in the file that begins with '/' stands outside the family's base.
struct NameRule {
  const char* file;
  const char* parameter;
  Part part = Part::whole;
  Stored stored = Stored::as_is;
};

/// Of several rules for one parameter and part the first is what is written; in a file any of them will do,
/// unless it is the first of another parameter's.
struct NameTable {
  const char* base;  // what names in a file may begin with: "bert."
  std::span<const NameRule> rules;
  std::span<const char* const> passed_over;  // tensors that are no parameters; * stands for anything
};

/// A tensor of a file.
struct StoredTensor {
  std::vector<int64_t> shape;
  std::string type;  // as the file names it
  bool readable = false;
  DType dtype = DType::f32;      // that read() gives
  std::function<void()> verify;  // CheckpointError if the file is damaged there
  /// Fills a tensor of the CPU, without gaps, with the elements from number `first` on.
  std::function<void(int64_t first, const Tensor& out)> read;
};

/// The tensors of one file, or of all the files that a model is spread over.
struct WeightFiles {
  std::string path;
  std::map<std::string, StoredTensor, std::less<>> tensors;
};

WeightFiles open_safetensors(const std::string& path);
/// The files that `index` (model.safetensors.index.json) lists, which lie in its folder.
WeightFiles open_shards(const std::string& index);
/// The files that the text of such an index lists, each with the names of its tensors. Names are those of
/// files in its own folder.
std::map<std::string, std::set<std::string>> parse_index(std::string_view text, const std::string& path);
WeightFiles open_gguf(const std::shared_ptr<const GgufReader>& reader);

/// What a module has in a file: `part` stands before its own names to make those of the whole model.
struct NameQuery {
  const NameTable& table;
  HeadLayout layout;  // with no number 0
  std::string part = {};
  std::string prefix = {};
  bool strict = true;
};

/// CheckpointError unless the file fits, as load_named would find out; nothing but names and shapes is read,
/// and a module made under ShapesOnly will do.
LoadReport check_named(Module& module, const WeightFiles& files, const NameQuery& query);

/// Reads the parameters, a piece of a tensor at a time: no more of the file is in memory. If staged, nothing
/// changes before all is read.
LoadReport load_named(Module& module, const WeightFiles& files, const NameQuery& query, bool staged);

/// Reads those parameters whose names fit a pattern, one after the other, and keeps them as 8-bit integers
/// (core/int8_weight.h), which load_named then passes over. One that the file lacks a part of stays as it is.
void load_as_int8(Module& module, const WeightFiles& files, const NameQuery& query,
                  std::span<const char* const> patterns);

/// The parameters under their names in a file, with or without the family's base, f32.
NamedTensors named_tensors(Module& module, const NameTable& table, const HeadLayout& layout, bool with_base);

}  // namespace heed::nn::detail
