// A tiny program for program_test: its command says how it is to end.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <limits>
#include <new>
#include <signal.h>
#include <system_error>
#include <thread>

#include <heed/core/base/check.h>

#include "apps/common/console.h"
#include "apps/common/json_lines.h"
#include "apps/common/options/command_line.h"
#include "apps/common/program.h"

namespace {
bool refuse_memory = false;  // from operator new
}

[[gnu::noinline]] void* operator new(size_t bytes) {
  if (!refuse_memory)
    if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return refuse_memory ? nullptr : std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

using namespace heed;

void end_with(const std::string& how) {
  if (how == "ok") return apps::write_out("fine\n");
  if (how == "config") throw ConfigError("a config error");
  if (how == "data") throw DataError("data\nover\tlines \x1b[31m");
  if (how == "checkpoint") throw CheckpointError("a checkpoint error");
  if (how == "memory") throw OutOfMemory("no memory");
  if (how == "bad_alloc") throw std::bad_alloc();
  if (how == "numeric") throw NumericError("a NaN");
  if (how == "device") throw DeviceError("no device");
  if (how == "io") throw IoError("no disk");
  if (how == "filesystem") std::filesystem::create_directory("/proc/no/such/folder");
  if (how == "long_path") std::filesystem::create_directory(std::string(4000, 'x'));
  if (how == "thread")
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  if (how == "bad_alloc_in_destructor") {
    struct Closes {
      ~Closes() { end_with("bad_alloc"); }
    };
    const Closes closes;
  }
  if (how == "no_memory_left") {
    refuse_memory = true;
    throw std::bad_alloc();
  }
  if (how == "no_memory_for_the_text") {
    const DataError error(std::string(600, 'x') + "\x1b[31m");
    refuse_memory = true;
    throw error;
  }
  if (how == "shape") throw ShapeError("a shape");
  if (how == "unknown") throw 1;
  if (how == "nested") {
    try {
      throw IoError("the cause");
    } catch (...) {
      std::throw_with_nested(CheckpointError("the effect"));
    }
  }
  if (how == "print") {
    for (int i = 0; i < 100000; ++i) std::cout << "a line of output\n";
    std::cout.flush();
  }
  if (how == "json") {
    apps::JsonLines lines;
    for (int i = 0; i < 10000; ++i)
      lines.write({{"i", i}, {"nan", std::numeric_limits<double>::quiet_NaN()}});
  }
  if (how == "tell") {
    struct sigaction action {};
    stack_t stack{};
    ::sigaction(SIGTERM, nullptr, &action);
    ::sigaltstack(nullptr, &stack);
    apps::write_out(action.sa_flags & SA_ONSTACK && !(stack.ss_flags & SS_DISABLE) ? "apart\n" : "shared\n");
  }
  if (how == "wait") {
    apps::write_out("ready\n");
    while (!apps::stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    apps::write_out("saved\n");
  }
  if (how == "leave") {
    apps::write_out("ready\n");
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(5))) apps::throw_if_stopped();
  }
  if (how == "unsaved") {
    apps::write_out("ready\n");
    while (!apps::stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    throw IoError("the disk is full");
  }
  if (how == "hang") {
    apps::write_out("ready\n");
    for (;;) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program(argc, argv, [](const std::vector<std::string>& arguments) {
    apps::CommandLine line("probe", "Ends as it is told.");
    std::string how = "ok";
    line.command("end", "end in one of the ways", [&] { end_with(how); }).text("how", how, "the way");
    line.command("other", "do nothing", [] {});
    line.run(arguments);
  });
}
