#include <algorithm>
#include <set>

#include <heed/core/autograd.h>
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

  Tensor rows() const { return whole ? parameter.detach() : parameter.detach().slice(0, begin, end); }
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

/// The rows of each head as [2, width / 2], from and to [width / 2, 2].
Tensor halves(const Tensor& x, int64_t width, bool interleaved) {
  const int64_t heads = x.size(0) / width, rest = x.numel() / std::max<int64_t>(x.size(0), 1);
  const Shape split = interleaved ? Shape{heads, width / 2, 2, rest} : Shape{heads, 2, width / 2, rest};
  return x.reshape(split).transpose(1, 2).reshape(x.shape());
}

Tensor from_file(const Tensor& x, Stored stored, int64_t head_width) {
  if (stored == Stored::transposed) return x.transpose(0, 1);
  if (stored == Stored::row) return x.select(0, 0);
  if (stored == Stored::interleaved_halves) return halves(x, head_width, true);
  return x;
}

Tensor to_file(const Tensor& x, Stored stored, int64_t head_width) {
  if (stored == Stored::transposed) return x.transpose(0, 1).contiguous();
  if (stored == Stored::row) return x.unsqueeze(0).contiguous();
  if (stored == Stored::interleaved_halves) return halves(x, head_width, false);
  return x.contiguous();
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
    Tensor value;
    for (const FileName& file : slot.files) {
      const Tensor read = files.tensors.find(file.name)->second.read();
      const Tensor copy = from_file(read, file.stored, query.layout.width);
      HEED_CHECK(!value.defined() || equal_all(value, copy), CheckpointError, "'", files.path, "': '",
                 file.name, "' and '", slot.files.front().name,
                 "' are one parameter of the model, but differ in the file");
      value = copy;
    }
    if (!value.defined()) continue;
    if (staged)
      values.emplace_back(slot.rows(), value.to(slot.parameter.dtype()));
    else
      slot.rows().copy_(value);
  }
  for (const auto& entry : values) entry.first.copy_(entry.second);
  return matched.report;
}

NamedTensors named_tensors(Module& module, const NameTable& table, const HeadLayout& layout, bool with_base) {
  NamedTensors result;
  for (const Slot& slot : Names(table, layout, "", with_base ? table.base : "").slots(module, "")) {
    const FileName& file = slot.files.front();
    const Tensor value = slot.rows().to(kCpu).to(DType::f32);
    result.emplace_back(file.name, to_file(value, file.stored, layout.width));
  }
  return result;
}

}  // namespace heed::nn::detail
