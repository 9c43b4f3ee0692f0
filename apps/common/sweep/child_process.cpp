#include "apps/common/sweep/child_process.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <heed/core/base/check.h>
#include <heed/core/io/file.h>

namespace heed::apps {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                           const std::filesystem::path& log) {
  HEED_ASSERT(!words.empty(), "a process needs a program");
  const FileDescriptor out(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  HEED_CHECK(out.valid(), IoError, "cannot write ", log.string(), ": ", std::strerror(errno));
  const FileDescriptor in(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  HEED_CHECK(in.valid(), IoError, "cannot read /dev/null: ", std::strerror(errno));
  const std::vector<char*> arguments = pointers(words), variables = pointers(environment);
  const pid_t parent = ::getpid();
  process_ = ::fork();
  HEED_CHECK(process_ >= 0, IoError, "cannot start ", words[0], ": ", std::strerror(errno));
  if (process_ > 0) return;

  // The child: up to its program it may do only what is safe in a signal handler.
  constexpr int kNoProgram = 127;
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kNoProgram);  // it died before it could be watched
  for (const int ignored : {SIGPIPE, SIGXFSZ}) ::signal(ignored, SIG_DFL);
  if (::dup2(in.get(), 0) < 0 || ::dup2(out.get(), 1) < 0 || ::dup2(out.get(), 2) < 0) ::_exit(kNoProgram);
  ::execve(arguments[0], arguments.data(), variables.data());
  ::_exit(kNoProgram);
}

ChildProcess::~ChildProcess() {
  terminate();
  wait(0);
}

std::optional<ChildProcess::Ended> ChildProcess::poll() { return wait(WNOHANG); }

void ChildProcess::terminate() {
  if (!ended_) ::kill(process_, SIGTERM);
}

std::optional<ChildProcess::Ended> ChildProcess::wait(int options) {
  if (ended_) return ended_;
  int status = 0;
  rusage usage{};
  pid_t found = 0;
  do found = ::wait4(process_, &status, options, &usage);
  while (found < 0 && errno == EINTR);
  if (found != process_) return std::nullopt;
  const std::chrono::duration<double> seconds = Clock::now() - start_;
  ended_ = Ended{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), usage.ru_maxrss * 1024,
                 seconds.count()};
  return ended_;
}

}  // namespace heed::apps
