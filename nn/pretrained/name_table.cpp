#include <algorithm>
#include <set>

#include <heed/core/autograd/autograd.h>
#include <heed/core/base/glob.h>
#include <heed/core/creation.h>
#include <heed/core/int8_weight.h>
#include <heed/core/io/detail/json_scanner.h>
#include <heed/core/io/safetensors.h>
#include <heed/core/ops.h>
#include <heed/nn/pretrained/detail/name_table.h>

namespace heed::nn::detail {
namespace {

/// What the * of a pattern stands for in a name, "" if it has none; nothing where they do not fit.
std::optional<std::string_view> captured(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == name ? std::optional<std::string_view>("") : std::nullopt;
  const std::string_view before = pattern.substr(0, star), after = pattern.substr(star + 1);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after))
    return std::nullopt;
  return name.substr(star, name.size() - before.size() - after.size());
}

std::optional<std::string_view> number_in(std::string_view pattern, std::string_view name) {
  const auto text = captured(pattern, name);
  if (!text || text->find_first_not_of("0123456789") != text->npos) return std::nullopt;
  return text;
}

std::string filled(std::string_view pattern, std::string_view number) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) return std::string(pattern);
  return concat(pattern.substr(0, star), number, pattern.substr(star + 1));
}

struct FileName {
  std::string name;
  Stored stored;
};

/// Rows of a parameter, and the names under which a file may have them.
struct Slot {
  Tensor parameter;
  std::string name;
  int64_t begin = 0, end = 0;  // rows
  bool whole = true;
  std::vector<FileName> files;

  /// Its rows of a tensor of the parameter's shape.
  Tensor of(const Tensor& all) const { return whole ? all : all.slice(0, begin, end); }
  Tensor rows() const { return of(parameter.detach()); }
  std::vector<int64_t> shape() const {
    std::vector<int64_t> shape(parameter.shape().begin(), parameter.shape().end());
    if (!whole) shape[0] = end - begin;
    return shape;
  }
};

std::vector<int64_t> shape_in_file(std::vector<int64_t> shape, Stored stored) {
  if (stored == Stored::transposed) std::reverse(shape.begin(), shape.end());
  if (stored == Stored::row) shape.insert(shape.begin(), 1);
  return shape;
}

class Names {
 public:
  Names(const NameTable& table, const HeadLayout& layout, std::string prefix, std::string base)
      : table_(table), layout_(layout), prefix_(std::move(prefix)), base_(std::move(base)) {}

  /// The base that the names of a file have.
  static std::string base_of(const WeightFiles& files, const NameTable& table, const std::string& prefix) {
    const std::string with = prefix + table.base;
    const auto first = files.tensors.lower_bound(with);
    return first != files.tensors.end() && first->first.starts_with(with) ? table.base : "";
  }

  std::vector<Slot> slots(Module& module, const std::string& part) const {
    std::vector<Slot> result;
    for (const Parameter& parameter : module.named_parameters()) {
      const size_t first = result.size();
      add_slots(result, first, parameter, part + parameter.name);
      for (const std::string& alias : parameter.aliases) add_slots(result, first, parameter, part + alias);
      HEED_CHECK(result.size() > first, ConfigError, "the files of this family have no name for '",
                 part + parameter.name, "'");
    }
    keep_first_names_apart(result);
    return result;
  }

  /// Whether a tensor that no slot takes belongs to another part of the model, or is no parameter.
  bool passes_over(std::string_view file_name, const std::string& part) const {
    if (!file_name.starts_with(prefix_)) return true;
    for (const char* const pattern : table_.passed_over)
      if (captured(in_file(pattern), file_name)) return true;
    for (const NameRule& rule : table_.rules)
      if (const auto number = number_in(in_file(rule.file), file_name))
        return !filled(rule.parameter, *number).starts_with(part);
    return !part.empty();
  }

 private:
  std::string in_file(std::string_view name) const {
    return name.starts_with('/') ? concat(prefix_, name.substr(1)) : concat(prefix_, base_, name);
  }

  /// What is written for one parameter is never read for another: an output layer of its own is no copy of
  /// the embedding.
  static void keep_first_names_apart(std::vector<Slot>& slots) {
    std::set<std::string> first;
    for (const Slot& slot : slots) first.insert(slot.files[0].name);
    for (Slot& slot : slots)
      std::erase_if(slot.files, [&](const FileName& file) {
        return file.name != slot.files[0].name && first.contains(file.name);
      });
  }

  void add_slots(std::vector<Slot>& slots, size_t first, const Parameter& parameter,
                 const std::string& name) const {
    for (const NameRule& rule : table_.rules) {
      const auto number = number_in(rule.parameter, name);
      if (!number) continue;
      const int64_t q = layout_.query_columns(), k = layout_.key_columns();
      const int64_t begin = rule.part == Part::key ? q : rule.part == Part::value ? q + k : 0;
      const int64_t end = begin + (rule.part == Part::query ? q : k);
      const bool whole = rule.part == Part::whole;
      HEED_CHECK(whole || (parameter.tensor.rank() > 0 && parameter.tensor.size(0) == q + 2 * k), ConfigError,
                 "'", name, "' is ", parameter.tensor.shape(), "; expected ", q + 2 * k,
                 " rows of queries, keys and values");
      Slot* slot = nullptr;
      for (size_t i = first; i < slots.size(); ++i)
        if (slots[i].whole == whole && (whole || slots[i].begin == begin)) slot = &slots[i];
      if (!slot) slot = &slots.emplace_back(Slot{parameter.tensor, parameter.name, begin, end, whole, {}});
      std::string file = in_file(filled(rule.file, *number));
      const bool known = std::any_of(slot->files.begin(), slot->files.end(),
                                     [&](const FileName& other) { return other.name == file; });
      if (!known) slot->files.push_back({std::move(file), rule.stored});
    }
  }

  const NameTable& table_;
  HeadLayout layout_;
  std::string prefix_, base_;
};

/// The slots, and the tensors of the file that each can be read from.
struct Matched {
  std::vector<Slot> slots;
  LoadReport report;
};

Matched match(Module& module, const WeightFiles& files, const NameQuery& query) {
  const Names names(query.table, query.layout, query.prefix,
                    Names::base_of(files, query.table, query.prefix));
  Matched matched{names.slots(module, query.part), {}};
  std::vector<std::string> mismatched;
  std::set<std::string_view> taken;
  for (Slot& slot : matched.slots) {
    std::vector<FileName> found;
    for (const FileName& file : slot.files) {
      const auto tensor = files.tensors.find(file.name);
      if (tensor == files.tensors.end()) continue;
      taken.insert(tensor->first);
      found.push_back(file);
      const std::vector<int64_t> expected = shape_in_file(slot.shape(), file.stored);
      if (!tensor->second.readable || tensor->second.shape != expected)
        mismatched.push_back(concat(heed::detail::quoted(file.name), " is ", tensor->second.type,
                                    heed::detail::shape_text(tensor->second.shape), " in the file and ",
                                    heed::detail::shape_text(expected), " in the model"));
    }
    if (found.empty()) matched.report.missing.push_back(slot.files.front().name);
    slot.files = found;
  }
  for (const auto& entry : files.tensors)
    if (!taken.contains(entry.first) && !names.passes_over(entry.first, query.part))
      matched.report.unexpected.push_back(entry.first);
  const LoadReport none;
  const LoadReport& wrong = query.strict ? matched.report : none;
  HEED_CHECK(mismatched.empty() && wrong.missing.empty() && wrong.unexpected.empty() &&
                 (matched.report.missing.size() < matched.slots.size() || matched.slots.empty()),
             CheckpointError, "'", files.path, "' does not fit the model; nothing was loaded",
             heed::detail::listed("missing", matched.report.missing),
             heed::detail::listed("unexpected", matched.report.unexpected),
             heed::detail::listed("mismatched", mismatched));
  return matched;
}

/// A parameter's rows seen as a file has them. Where halves are interleaved the first axis counts heads, and
/// the elements come in the file's order all the same.
Tensor in_file_order(const Tensor& rows, Stored stored, int64_t head_width) {
  if (stored == Stored::transposed) return rows.transpose(0, 1);
  if (stored == Stored::row) return rows.unsqueeze(0);
  if (stored == Stored::interleaved_halves) {
    const int64_t all = rows.size(0), rest = rows.numel() / std::max<int64_t>(all, 1);
    return rows.reshape({all / head_width, 2, head_width / 2, rest}).transpose(1, 2);
  }
  return rows;
}

constexpr int64_t kPieceElements = 1 << 18;  // a multiple of what a block of any file holds

/// Hands the elements of a file to each(rows of `target`, theirs in the file), a piece at a time.
template <class Each>
void for_each_piece(const StoredTensor& file, const Tensor& target, Each&& each) {
  if (target.numel() == 0) return;
  const int64_t count = target.size(0), row = target.numel() / count;
  const int64_t step = std::max<int64_t>(kPieceElements / row, 1);
  const Tensor buffer = empty({std::min(step, count) * row}, {file.dtype, kCpu});
  for (int64_t first = 0; first < count; first += step) {
    const int64_t last = std::min(first + step, count);
    const Tensor rows = target.slice(0, first, last), piece = buffer.slice(0, 0, (last - first) * row);
    file.read(first * row, piece);
    each(rows, piece.reshape(rows.shape()));
  }
}

/// Reads a slot's rows. If the file has them under several names, they must be the same.
void read_slot(const Slot& slot, const WeightFiles& files, int64_t head_width, const Tensor& target) {
  for (const FileName& name : slot.files) {
    const StoredTensor& file = files.tensors.find(name.name)->second;
    const bool first = &name == &slot.files.front();
    file.verify();
    for_each_piece(file, in_file_order(target, name.stored, head_width),
                   [&](const Tensor& rows, const Tensor& piece) {
                     if (first) rows.copy_(piece);
                     HEED_CHECK(first || array_equal(rows, piece.to(rows.dtype())), CheckpointError, "'",
                                files.path, "': '", name.name, "' and '", slot.files.front().name,
                                "' are one parameter of the model, but differ in the file");
                   });
  }
}

}  // namespace

LoadReport check_named(Module& module, const WeightFiles& files, const NameQuery& query) {
  return match(module, files, query).report;
}

LoadReport load_named(Module& module, const WeightFiles& files, const NameQuery& query, bool staged) {
  const NoGrad no_grad;
  const Matched matched = match(module, files, query);
  std::vector<std::pair<Tensor, Tensor>> values;  // rows of a parameter, and theirs
  for (const Slot& slot : matched.slots) {
    if (slot.files.empty() || is_int8(slot.parameter)) continue;
    Tensor target = slot.rows();
    if (staged) {
      target = empty(target.shape(), {target.dtype(), kCpu});
      values.emplace_back(slot.rows(), target);
    }
    read_slot(slot, files, query.layout.width, target);
  }
  for (const auto& entry : values) entry.first.copy_(entry.second);
  return matched.report;
}

void load_as_int8(Module& module, const WeightFiles& files, const NameQuery& query,
                  std::span<const char* const> patterns) {
  const NoGrad no_grad;
  const Matched matched = match(module, files, query);
  const std::vector<Slot>& slots = matched.slots;
  for (size_t first = 0, last = 0; first < slots.size(); first = last) {
    const Tensor& parameter = slots[first].parameter;
    bool complete = true;
    while (last < slots.size() && slots[last].name == slots[first].name)
      complete &= !slots[last++].files.empty();
    const bool chosen = std::any_of(patterns.begin(), patterns.end(),
                                    [&](const char* pattern) { return matches(pattern, slots[first].name); });
    if (!complete || !chosen) continue;
    const Tensor values = empty(parameter.shape());
    for (size_t i = first; i < last; ++i) read_slot(slots[i], files, query.layout.width, slots[i].of(values));
    keep_as_int8(parameter, values);
  }
}

NamedTensors named_tensors(Module& module, const NameTable& table, const HeadLayout& layout, bool with_base) {
  NamedTensors result;
  for (const Slot& slot : Names(table, layout, "", with_base ? table.base : "").slots(module, "")) {
    const FileName& file = slot.files.front();
    const Tensor value = slot.rows().to(kCpu).to(DType::f32);
    const std::vector<int64_t> shape = shape_in_file(slot.shape(), file.stored);
    result.emplace_back(file.name, in_file_order(value, file.stored, layout.width)
                                       .reshape(Shape(std::span<const int64_t>(shape)))
                                       .contiguous());
  }
  return result;
}

}  // namespace heed::nn::detail
