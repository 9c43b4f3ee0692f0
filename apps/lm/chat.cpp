// A conversation.
#include <cstdio>
#include <memory>
#include <unistd.h>

#include "apps/common/console.h"
#include "apps/common/json_lines.h"
#include "apps/common/program.h"
#include "apps/lm/commands.h"

namespace heed::apps {

void chat(const ChatSettings& s) {
  const nn::TextGenerator generator = open_generator(s);
  nn::Chat conversation(generator, s.system.empty() ? std::nullopt : std::optional(s.system));
  const nn::TextGenerateOptions options = streaming(s, s.json);
  const auto answer = [&](const std::string& message) {
    const std::string reply = conversation.reply(message, options);
    if (s.json)
      JsonLines().write({{"user", message}, {"assistant", reply}, {"tokens", conversation.tokens()}});
    else
      write_out("\n");
  };
  for (const std::string& message : s.messages) answer(message);
  if (!s.messages.empty()) return;
  const bool typed = ::isatty(STDIN_FILENO) != 0;
  if (typed) std::fputs("say something, a line each time (Ctrl-D ends)\n", stderr);
  char* room = nullptr;
  size_t size = 0;
  const auto next = [&] {
    if (typed) std::fputs("> ", stderr);
    return ::getline(&room, &size, stdin);
  };
  const auto release = [&](void*) { std::free(room); };
  const std::unique_ptr<void, decltype(release)> owner(&room, release);
  for (ssize_t got = next(); got >= 0; got = next()) {
    throw_if_stopped();
    std::string message(room, static_cast<size_t>(got));
    while (message.ends_with('\n') || message.ends_with('\r')) message.pop_back();
    if (!message.empty()) answer(message);
  }
  if (typed) std::fputs("\n", stderr);
}

}  // namespace heed::apps
