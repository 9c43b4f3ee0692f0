#include "apps/common/program.h"

#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <signal.h>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "apps/common/json_lines.h"

namespace heed::apps {
namespace {

std::string read_all(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

struct Ended {
  int code = -1;  // 256 + the signal if one ended it
  std::string out, err;
};

// Starts the probe with its output in files; in_child runs between fork and exec.
class Probe {
 public:
  explicit Probe(
      const std::vector<std::string>& arguments, const std::function<void()>& in_child = [] {}) {
    base_ = testing::TempDir() + "probe_" + std::to_string(::getpid());
    std::vector<char*> argv{const_cast<char*>(PROGRAM_PROBE)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    std::ofstream(base_ + ".out"), std::ofstream(base_ + ".err");
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(::open((base_ + ".out").c_str(), O_WRONLY | O_TRUNC), 1);
      ::dup2(::open((base_ + ".err").c_str(), O_WRONLY | O_TRUNC), 2);
      in_child();
      ::execv(argv[0], argv.data());
      ::_exit(99);
    }
  }

  // Until the probe has written "ready".
  void wait_ready() const {
    for (int i = 0; i < 2000 && read_all(base_ + ".out").empty(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  void send(int signal) const { ::kill(process_, signal); }
  std::string err() const { return read_all(base_ + ".err"); }

  Ended end() const {
    int status = 0;
    ::waitpid(process_, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status), read_all(base_ + ".out"),
            err()};
  }

 private:
  std::string base_;
  pid_t process_ = -1;
};

Ended run(const std::vector<std::string>& arguments) { return Probe(arguments).end(); }

TEST(Program, EachKindOfErrorHasItsExitCode) {
  const std::vector<std::pair<std::string, int>> codes{{"ok", 0},
                                                       {"shape", 1},
                                                       {"unknown", 1},
                                                       {"config", 2},
                                                       {"data", 3},
                                                       {"checkpoint", 4},
                                                       {"memory", 5},
                                                       {"bad_alloc", 5},
                                                       {"thread", 5},
                                                       {"numeric", 6},
                                                       {"device", 7},
                                                       {"io", 8},
                                                       {"filesystem", 8},
                                                       {"long_path", 8},
                                                       {"bad_alloc_in_destructor", 5},
                                                       {"no_memory_left", 5},
                                                       {"no_memory_for_the_text", 3}};
  for (const auto& [how, code] : codes) {
    const Ended ended = run({"end", "--how", how});
    EXPECT_EQ(ended.code, code) << how;
    if (code == 0) {
      EXPECT_EQ(ended.out, "fine\n");
      EXPECT_EQ(ended.err, "");
    } else {
      EXPECT_EQ(ended.out, "");
      EXPECT_EQ(ended.err.substr(0, 13), "heed: error: ") << how;
      EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << "more than one line: " << ended.err;
    }
  }
}

TEST(Program, MessagesCannotSteerTheTerminal) {
  EXPECT_EQ(run({"end", "--how", "data"}).err, "heed: error: data\\nover\\tlines \\x1b[31m\n");
  EXPECT_EQ(run({"end", "--how", "no_memory_for_the_text"}).err,
            "heed: error: " + std::string(600, 'x') + "?[31m\n");
}

TEST(Program, MissingMemoryIsToldWithoutMemory) {
  for (const char* how : {"bad_alloc", "no_memory_left", "bad_alloc_in_destructor"})
    EXPECT_EQ(run({"end", "--how", how}).err,
              "heed: error: out of memory: the system refused an allocation\n");
}

TEST(Program, ErrorsOfTheFileSystemNameTheFileShortened) {
  EXPECT_EQ(run({"end", "--how", "filesystem"}).err,
            "heed: error: cannot use /proc/no/such/folder: No such file or directory\n");
  EXPECT_EQ(run({"end", "--how", "long_path"}).err,
            "heed: error: cannot use " + std::string(199, 'x') + "…: File name too long\n");
}

TEST(Program, DebugNamesTypesAndCauses) {
  EXPECT_EQ(run({"end", "--how", "nested"}).err, "heed: error: the effect\n");
  const std::string err = run({"end", "--how", "nested", "--debug"}).err;
  EXPECT_NE(err.find("heed: error: the effect\n"), std::string::npos) << err;
  EXPECT_NE(err.find("heed::CheckpointError"), std::string::npos) << err;
  EXPECT_NE(err.find("heed: debug: caused by: the cause\n"), std::string::npos) << err;
}

TEST(Program, DebugInTheEnvironmentIsTrueOrFalse) {
  const auto with = [](const char* value) {
    return Probe({"end", "--how", "data"}, [value] { ::setenv("HEED_DEBUG", value, 1); }).end();
  };
  EXPECT_NE(with("1").err.find("heed::DataError"), std::string::npos);
  for (const char* off : {"0", ""}) EXPECT_EQ(with(off).err.find("heed: debug"), std::string::npos);
  const Ended ended = with("2");
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.err, "heed: error: HEED_DEBUG: '2' is not true or false\n");
}

TEST(Program, UsageErrorsExitWithTwo) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> rows{
      {{"edn"}, "unknown command 'edn', did you mean end?; the commands are end, other"},
      {{"--how", "ok"}, "the command comes first: probe end --how …"},
      {{"end", "--hwo", "ok"}, "unknown option --hwo; did you mean --how? (see 'probe end --help')"},
      {{"end", "--how"}, "--how: the value is missing"},
      {{"\xff\xfe"}, "unknown command '\\xff\\xfe'; the commands are end, other"},
      {{"end", "--how", "\xff"}, "--how: '\\xff' is not UTF-8 (byte 1)"},
      {{"end", "extra"}, "unexpected argument 'extra' (see 'probe end --help')"}};
  for (const auto& [arguments, text] : rows) {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.code, 2);
    EXPECT_EQ(ended.err, "heed: error: " + text + "\n");
  }
}

TEST(Program, HelpAndVersionGoToStandardOutput) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{{}, {"--help"}, {"help"}, {"-h"}}) {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.code, 0);
    EXPECT_NE(ended.out.find("Usage: probe COMMAND [options]"), std::string::npos) << ended.out;
    EXPECT_NE(ended.out.find("  end    end in one of the ways\n"), std::string::npos) << ended.out;
  }
  EXPECT_NE(run({"end", "--help"}).out.find("Usage: probe end [options]"), std::string::npos);
  EXPECT_EQ(run({"--version"}).out.substr(0, 12), "probe (heed ");
}

TEST(Program, FirstSignalStopsInGoodOrder) {
  for (const auto& [signal, code] :
       {std::pair(SIGINT, 130), std::pair(SIGTERM, 143), std::pair(SIGHUP, 129)}) {
    const Probe probe({"end", "--how", "wait"});
    probe.wait_ready();
    probe.send(signal);
    const Ended ended = probe.end();
    EXPECT_EQ(ended.code, code);
    EXPECT_EQ(ended.out, "ready\nsaved\n");

    const Probe leaving({"end", "--how", "leave"});
    leaving.wait_ready();
    leaving.send(signal);
    const Ended left = leaving.end();
    EXPECT_EQ(left.code, code);
    EXPECT_EQ(left.err.find("error"), std::string::npos) << left.err;
  }
}

TEST(Program, AnErrorAfterASignalKeepsItsCode) {
  const Probe probe({"end", "--how", "unsaved"});
  probe.wait_ready();
  probe.send(SIGTERM);
  const Ended ended = probe.end();
  EXPECT_EQ(ended.code, 8);
  EXPECT_NE(ended.err.find("heed: error: the disk is full\n"), std::string::npos) << ended.err;
}

TEST(Program, AnIgnoredHangupStaysIgnored) {
  const Probe probe({"end", "--how", "wait"}, [] { ::signal(SIGHUP, SIG_IGN); });
  probe.wait_ready();
  probe.send(SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(probe.err(), "");
  probe.send(SIGTERM);
  EXPECT_EQ(probe.end().code, 143);
}

TEST(Program, AFileBeyondTheLimitIsAnErrorNotACrash) {
  const Ended ended = Probe({"end", "--how", "json"}, [] {
                        const rlimit limit{1000, 1000};
                        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(98);
                      }).end();
  EXPECT_EQ(ended.code, 8);
  EXPECT_EQ(ended.err, "heed: error: cannot write to standard output: File too large\n");
}

// Generated code of oneDNN loses what it keeps below the stack pointer to a handler that runs there.
TEST(Program, SignalHandlersHaveAStackOfTheirOwn) { EXPECT_EQ(run({"end", "--how", "tell"}).out, "apart\n"); }

TEST(Program, SecondSignalStopsAtOnce) {
  for (const auto& [signal, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    const Probe probe({"end", "--how", "hang"});
    probe.wait_ready();
    probe.send(signal);
    for (int i = 0; i < 2000 && probe.err().empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    probe.send(signal);
    EXPECT_EQ(probe.end().code, code);
  }
}

// Standard output is a pipe whose reader is gone.
void break_pipe() {
  int ends[2];
  if (::pipe(ends) != 0) ::_exit(98);
  ::close(ends[0]);
  ::dup2(ends[1], 1);
}

TEST(Program, OutputThatNobodyReadsIsAnErrorNotACrash) {
  for (const char* how : {"ok", "json"}) {
    const Ended broken = Probe({"end", "--how", how}, break_pipe).end();
    EXPECT_EQ(broken.code, 8) << how;
    EXPECT_EQ(broken.err, "heed: error: cannot write to standard output: Broken pipe\n") << how;
    const Ended closed = Probe({"end", "--how", how}, [] { ::close(1); }).end();
    EXPECT_EQ(closed.code, 8) << how;
    EXPECT_EQ(closed.err, "heed: error: cannot write to standard output: Bad file descriptor\n") << how;
  }
  const Ended stream = Probe({"end", "--how", "print"}, break_pipe).end();
  EXPECT_EQ(stream.code, 8);
  EXPECT_EQ(stream.err.substr(0, 44), "heed: error: cannot write to standard output");
  const Ended none = Probe({"end", "--how", "data"}, [] { ::close(0), ::close(1), ::close(2); }).end();
  EXPECT_EQ(none.code, 3);
}

TEST(Program, WorksWithoutEnvironment) {
  const Ended ended = Probe({"end"}, [] { ::clearenv(); }).end();
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.out, "fine\n");
}

TEST(Program, OptionsComeFromTheRealEnvironment) {
  const Ended ended = Probe({"end"}, [] { ::setenv("HEED_HOW", "numeric", 1); }).end();
  EXPECT_EQ(ended.code, 6);
}

TEST(JsonLines, KeepsOrderAndWritesNullForNan) {
  const std::string file = testing::TempDir() + "lines.jsonl";
  std::filesystem::remove(file);
  {
    JsonLines lines{std::filesystem::path(file)};
    lines.write({{"z", 1},
                 {"a", std::numeric_limits<double>::quiet_NaN()},
                 {"b", -std::numeric_limits<double>::infinity()}});
    lines.write({{"text", "line\nü\xff"}});
    EXPECT_NE(read_all(file), "") << "each line is written at once";
  }
  JsonLines(std::filesystem::path(file)).write({{"x", 0.1}});
  EXPECT_EQ(read_all(file),
            "{\"z\":1,\"a\":null,\"b\":null}\n{\"text\":\"line\\nü\xef\xbf\xbd\"}\n{\"x\":0.1}\n");
  EXPECT_THROW(JsonLines(std::filesystem::path("no/such/dir/x.jsonl")), IoError);
}

TEST(JsonLines, LinesOfAnyBytesAreObjectsOrNothing) {
  EXPECT_EQ(parse_json_line(R"({"a":1,"b":"x","c":null,"d":[1],"e":{"f":2}})"),
            Json({{"a", 1}, {"b", "x"}, {"c", nullptr}}));
  EXPECT_EQ(parse_json_line("{}"), Json::object());
  const std::string deep(58'000, '[');
  for (const std::string& line : {std::string(), std::string(200, '\0'), std::string("{\"a\":1"),
                                  std::string("{\"a\":1}x"), std::string("[1]"), std::string("1"),
                                  std::string("{'a':1}"), std::string("\xff\xfe"), deep, "{\"a\":" + deep})
    EXPECT_FALSE(parse_json_line(line)) << line.substr(0, 20);
  const std::string nested = "{\"a\":" + deep + std::string(58'000, ']') + ",\"b\":2}";
  EXPECT_EQ(parse_json_line(nested), Json({{"b", 2}}));
}

TEST(JsonLines, RepairKeepsGoodLinesWordForWord) {
  const std::string file = testing::TempDir() + "repair.jsonl";
  const auto repaired = [&](const std::string& text, int64_t most) {
    std::ofstream(file, std::ios::binary) << text;
    return repair_json_lines(file, [&](const Json& line) { return line.contains("n") && line["n"] <= most; });
  };
  const std::string good = "{\"n\":1}\n{ \"n\" : 2.0 }\n";
  EXPECT_EQ(repaired(good, 9).size(), 2u);
  EXPECT_EQ(read_all(file), good);
  for (const std::string& damage :
       {std::string("\n"), std::string(200, '\0') + "\n", std::string(58'000, '[') + "\n",
        std::string("{\"n\":1\n"), std::string("{\"other\":1}\n")}) {
    for (const std::string& text :
         {damage + good, "{\"n\":1}\n" + damage + "{ \"n\" : 2.0 }\n", good + damage}) {
      EXPECT_EQ(repaired(text, 9), (std::vector<Json>{{{"n", 1}}, {{"n", 2.0}}}));
      EXPECT_EQ(read_all(file), good);
    }
  }
  EXPECT_EQ(repaired(good + "{\"n\":3}", 9).size(), 2u) << "the last line was cut short";
  EXPECT_EQ(read_all(file), good);
  EXPECT_EQ(repaired(good, 1).size(), 1u);
  EXPECT_EQ(read_all(file), "{\"n\":1}\n");
  std::filesystem::remove(file);
  EXPECT_TRUE(repair_json_lines(file, [](const Json&) { return true; }).empty());
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_THROW(repair_json_lines(file, [](const Json&) { return true; }), IoError);
  EXPECT_THROW(JsonLines{std::filesystem::path(file)}, IoError);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace heed::apps
