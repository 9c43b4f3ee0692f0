// A conversation.
#include <cstdio>
#include <unistd.h>

#include "apps/common/console.h"
#include "apps/common/json_lines.h"
#include "apps/common/lines.h"
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
  if (::isatty(STDIN_FILENO)) std::fputs("say something, a line each time (Ctrl-D ends)\n", stderr);
  for_each_input_line("> ", answer);
}

}  // namespace heed::apps
