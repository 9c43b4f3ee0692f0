// The command export: a folder with what use needs, and no more.
#include <cstdio>
#include <filesystem>

#include <heed/core/io/atomic_file.h>
#include <heed/core/io/file.h>

#include "apps/common/json_lines.h"
#include "apps/common/text.h"
#include "apps/translate/commands.h"

namespace heed::apps {

namespace fs = std::filesystem;

void export_model(const ExportSettings& s) {
  HEED_CHECK(!s.out.empty(), ConfigError, "export needs a folder to write to: --out");
  std::error_code ignored;
  HEED_CHECK(s.force || !fs::exists(s.out, ignored) || fs::is_empty(s.out, ignored), ConfigError,
             s.out.string(), " is not empty; --force writes into it all the same");
  HEED_CHECK(!fs::equivalent(s.out, s.model, ignored), ConfigError,
             "--out is the folder of the model itself");
  const nn::TextModel model = nn::load_text_model(s.model.string(), apply(s));
  fs::create_directories(s.out);
  const std::string settings = (s.model / "config.toml").string();
  if (fs::exists(settings, ignored)) {
    constexpr uint64_t kMaxBytes = 1 << 20;
    write_whole_file((s.out / "config.toml").string(), read_whole_file(settings, kMaxBytes));
  }
  model.save(s.out.string(), s.dtype);
  const auto bytes = static_cast<int64_t>(fs::file_size(s.out / "model.safetensors"));
  if (s.json)
    JsonLines().write({{"folder", s.out.string()}, {"weights_bytes", bytes}});
  else
    std::printf("%s: weights of %s bytes\n", printable(s.out.string()).c_str(), grouped(bytes).c_str());
}

}  // namespace heed::apps
