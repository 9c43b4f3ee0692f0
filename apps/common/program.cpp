#include "apps/common/program.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <ios>
#include <memory>
#include <new>
#include <optional>
#include <signal.h>
#include <string_view>
#include <system_error>
#include <typeinfo>
#include <unistd.h>

#include <fmt/format.h>

#include "apps/common/console.h"
#include "apps/common/options/option_values.h"
#include "apps/common/text.h"

namespace heed::apps {

namespace {

volatile sig_atomic_t stop_signal = 0;

extern "C" void on_stop_signal(int signal) {
  constexpr int kSignalExit = 128;
  if (stop_signal != 0) {
    if (signal == SIGHUP) return;
    ::_exit(kSignalExit + signal);
  }
  stop_signal = signal;
  static const char notice[] = "\nheed: stopping in good order; once more stops at once\n";
  const int saved = errno;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, notice, sizeof notice - 1);
  errno = saved;
}

// On a stack of its own: generated code of oneDNN keeps data below the stack pointer, further than the 128
// bytes that a handler leaves alone, and would go on with what the handler wrote there.
void use_signal_stack() {
  stack_t present{};
  ::sigaltstack(nullptr, &present);
  if (!(present.ss_flags & SS_DISABLE)) return;  // a sanitizer's
  alignas(16) static char memory[64 << 10];
  const stack_t stack{.ss_sp = memory, .ss_flags = 0, .ss_size = sizeof memory};
  ::sigaltstack(&stack, nullptr);
}

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_flags = SA_ONSTACK;
  action.sa_handler = handler;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

bool is_ignored(int signal) {
  struct sigaction present = {};
  return ::sigaction(signal, nullptr, &present) == 0 && present.sa_handler == SIG_IGN;
}

// A file opened while descriptor 0, 1 or 2 is closed would take its place and receive the program's output.
void fill_standard_descriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // The wrong direction on purpose: what is written to a closed output stays an error.
    [[maybe_unused]] const int opened = ::open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY);
  }
}

template <class... Errors>
bool is_any(const std::exception& error) {
  return (dynamic_cast<const Errors*>(&error) || ...);
}

std::string type_of(const std::exception& error) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status), &std::free);
  return name ? name.get() : typeid(error).name();
}

constexpr std::string_view kNoMemory = "out of memory: the system refused an allocation";

// Past the buffers of streams, and without memory: there may be none.
void write_error(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// A text of any length, safe for a terminal, without memory.
void write_disarmed(std::string_view text) {
  char part[256];
  while (!text.empty()) {
    const size_t size = std::min(text.size(), sizeof part);
    std::transform(text.begin(), text.begin() + static_cast<ptrdiff_t>(size), part,
                   [](char c) { return c >= ' ' && c < 0x7f ? c : '?'; });
    write_error({part, size});
    text.remove_prefix(size);
  }
}

std::string text_of(const std::exception& error) {
  if (is_any<std::bad_alloc>(error)) return std::string(kNoMemory);
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    constexpr int kLongest =
        200;  // columns of a path; one that is too long for the system may be the mistake
    return fmt::format("cannot use {}: {}", shorten(file->path1().string(), kLongest),
                       file->code().message());
  }
  return printable(error.what());
}

// One line for people; the type and the chain of causes with --debug.
void print_error(const std::exception& error, bool debug, int depth = 0) {
  const std::string text = text_of(error);
  fmt::memory_buffer line;
  const auto out = std::back_inserter(line);
  if (depth == 0) fmt::format_to(out, "heed: error: {}\n", text);
  if (debug && depth > 0) fmt::format_to(out, "heed: debug: caused by: {}\n", text);
  if (debug) fmt::format_to(out, "heed: debug: type: {}\n", type_of(error));
  write_error({line.data(), line.size()});
  if (!debug) return;
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& cause) {
    print_error(cause, debug, depth + 1);
  } catch (...) {
  }
}

// The same where there may be no memory to put the line together.
void print_error_anyhow(const std::exception& error, bool debug) noexcept {
  try {
    return print_error(error, debug);
  } catch (...) {
  }
  write_error("heed: error: ");
  write_disarmed(is_any<std::bad_alloc>(error) ? kNoMemory : error.what());
  write_error("\n");
}

std::terminate_handler usual_terminate = std::abort;

// Memory that is missing where no exception can leave, as in a destructor, is no bug of the program either.
[[noreturn]] void on_terminate() {
  try {
    if (std::current_exception()) throw;
  } catch (const std::bad_alloc& error) {
    print_error_anyhow(error, false);
    ::_exit(static_cast<int>(ExitCode::memory));
  } catch (const OutOfMemory& error) {
    print_error_anyhow(error, false);
    ::_exit(static_cast<int>(ExitCode::memory));
  } catch (...) {
  }
  usual_terminate();
  std::abort();
}

bool debug_from_environment() {
  const char* text = std::getenv("HEED_DEBUG");
  if (!text || !*text) return false;
  const std::optional<bool> value = parse_flag(text);
  HEED_CHECK(value, ConfigError, "HEED_DEBUG: '", text, "' is not true or false");
  return *value;
}

// A thread that cannot be made.
bool is_short_of_resources(const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  return system && (system->code() == std::errc::resource_unavailable_try_again ||
                    system->code() == std::errc::not_enough_memory);
}

}  // namespace

ExitCode exit_code(const std::exception& error) {
  if (is_any<ConfigError>(error)) return ExitCode::usage;
  if (is_any<DataError>(error)) return ExitCode::data;
  if (is_any<CheckpointError>(error)) return ExitCode::checkpoint;
  if (is_any<OutOfMemory, std::bad_alloc>(error)) return ExitCode::memory;
  if (is_any<NumericError>(error)) return ExitCode::numeric;
  if (is_any<DeviceError>(error)) return ExitCode::device;
  if (is_any<IoError, std::filesystem::filesystem_error, std::ios_base::failure>(error)) return ExitCode::io;
  if (is_short_of_resources(error)) return ExitCode::memory;
  return ExitCode::internal;
}

bool stop_requested() { return stop_signal != 0; }

void throw_if_stopped() {
  if (stop_requested()) throw Stopped();
}

int run_program(int argc, char** argv, const std::function<void(const std::vector<std::string>&)>& f) {
  fill_standard_descriptors();
  use_signal_stack();
  set_handler(SIGINT, on_stop_signal);
  set_handler(SIGTERM, on_stop_signal);
  if (!is_ignored(SIGHUP)) set_handler(SIGHUP, on_stop_signal);
  set_handler(SIGPIPE, SIG_IGN);
  set_handler(SIGXFSZ, SIG_IGN);
  usual_terminate = std::set_terminate(on_terminate);
  bool debug = false;
  int code = static_cast<int>(ExitCode::ok);
  try {
    std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
    const auto end = std::find(arguments.begin(), arguments.end(), "--");
    const auto wanted = std::find(arguments.begin(), end, "--debug");
    if (wanted != end) {
      debug = true;
      arguments.erase(wanted);
    }
    debug |= debug_from_environment();
    f(arguments);
    errno = 0;
    const bool flushed = std::fflush(stdout) == 0 && !std::ferror(stdout);
    // The reason for a failure of long ago is no longer known.
    HEED_CHECK(flushed, IoError, "cannot write to standard output", errno ? ": " : "",
               errno ? std::strerror(errno) : "");
  } catch (const Stopped&) {
  } catch (const std::exception& error) {
    print_error_anyhow(error, debug);
    code = static_cast<int>(exit_code(error));
  } catch (...) {
    std::fputs("heed: error: an exception of an unknown type\n", stderr);
    code = static_cast<int>(ExitCode::internal);
  }
  constexpr int kSignalExit = 128;
  return stop_signal != 0 && code == static_cast<int>(ExitCode::ok) ? kSignalExit + stop_signal : code;
}

}  // namespace heed::apps
