#include <algorithm>
#include <csignal>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/core/io/append_file.h>
#include <heed/core/io/atomic_file.h>
#include <heed/core/io/directory_lock.h>

#include "../../support/expect_error.h"
#include "../../support/temporary_folder.h"

namespace heed::test {
namespace {

TEST(AtomicFile, AppearsOnlyOnCommit) {
  const TemporaryFolder folder;
  folder.put("f", "old");
  {
    AtomicFile file(folder.file("f"));
    file.write("new ");
    file.write("text");
    file.write_at(0, "N", 1);
    EXPECT_EQ(folder.get("f"), "old");
    EXPECT_EQ(folder.entries(), 2u);
    file.commit();
    EXPECT_EQ(folder.get("f"), "New text");
    expect_error<StateError>([&] { file.commit(); }, {"twice"});
    expect_error<StateError>([&] { file.write("x"); }, {"already synced"});
  }
  EXPECT_EQ(folder.entries(), 1u);
  write_whole_file(folder.file("g"), "all of it");
  EXPECT_EQ(folder.get("g"), "all of it");
}

TEST(AtomicFile, WithoutCommitNothingStays) {
  const TemporaryFolder folder;
  { AtomicFile(folder.file("f")).write("text"); }
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(AtomicFile, TwoWritersDoNotShareATemporaryFile) {
  const TemporaryFolder folder;
  AtomicFile first(folder.file("f"));
  AtomicFile second(folder.file("f"));
  EXPECT_NE(first.temporary_path(), second.temporary_path());
  first.write("first");
  second.write("second");
  second.commit();
  first.commit();
  EXPECT_EQ(folder.get("f"), "first");
}

TEST(AtomicFile, KeepsPermissionsAndReplacesLinks) {
  const TemporaryFolder folder;
  folder.put("target", "old");
  ASSERT_EQ(::chmod(folder.file("target").c_str(), 0600), 0);
  write_whole_file(folder.file("target"), "newer");
  struct stat info;
  ASSERT_EQ(::stat(folder.file("target").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);

  const auto link_to = [&](const char* target) {
    std::filesystem::remove(folder.file("link"));
    ASSERT_EQ(::symlink(target, folder.file("link").c_str()), 0);
  };
  for (const char* target : {"target", "missing", "link"}) {
    link_to(target);
    write_whole_file(folder.file("link"), "new");
    EXPECT_FALSE(std::filesystem::is_symlink(folder.file("link"))) << target;
    EXPECT_EQ(folder.get("link"), "new");
    EXPECT_FALSE(std::filesystem::exists(folder.file("missing")));
    EXPECT_EQ(folder.get("target"), "newer");
  }
  for (const char* target : {".", "/dev/null"}) {
    link_to(target);
    expect_error<IoError>([&] { AtomicFile(folder.file("link")); }, {"cannot write"});
    EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
  }
}

TEST(AtomicFile, SaysWhyATargetIsImpossible) {
  const TemporaryFolder folder;
  expect_error<IoError>([&] { AtomicFile(folder.path()); }, {folder.path(), "it is a directory"});
  expect_error<IoError>([&] { AtomicFile(folder.file("none/f")); }, {"none", "No such file or directory"});
  expect_error<IoError>([&] { AtomicFile(""); }, {"not a file name"});
  expect_error<IoError>([&] { AtomicFile("/dev/null"); }, {"not a regular file"});
  folder.put("plain", "");
  expect_error<IoError>([&] { AtomicFile(folder.file("plain/f")); }, {"Not a directory"});
  expect_error<IoError>([&] { AtomicFile(folder.file(std::string(300, 'x'))); }, {"File name too long"});
  if (::geteuid() != 0) {
    ASSERT_EQ(::chmod(folder.path().c_str(), 0500), 0);
    expect_error<IoError>([&] { AtomicFile(folder.file("f")); }, {"Permission denied"});
    ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
  }
}

TEST(AtomicFile, ADiskThatIsFullIsReported) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();  // the limit on file sizes stands in for a full disk, in a process of its own
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit { 4096, 4096 };
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    try {
      write_whole_file(folder.file("f"), std::string(10'000, 'x'));
    } catch (const IoError& error) {
      ::_exit(std::string(error.what()).find("File too large") != std::string::npos && folder.entries() == 0
                  ? 0
                  : 3);
    }
    ::_exit(4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(AtomicFile, TemporaryNamesAreRecognised) {
  const TemporaryFolder folder;
  AtomicFile file(folder.file("model.safetensors"));
  EXPECT_TRUE(is_temporary_file(std::filesystem::path(file.temporary_path()).filename().string()));
  for (const char* name :
       {"", "model", "model.tmp-", "model.tmp-1", "model.tmp-1-", "model.tmp--1", ".tmp-1-2", "m.tmp-a-1"})
    EXPECT_FALSE(is_temporary_file(name)) << name;
}

TEST(InputFile, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  expect_error<IoError>([&] { InputFile(folder.file("none")); }, {folder.file("none"), "No such file"});
  expect_error<IoError>([&] { InputFile file(folder.path()); }, {"it is a directory"});
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  expect_error<IoError>([&] { InputFile file(folder.file("pipe")); }, {"not a regular file"});
  const InputFile file(folder.put("f", "abc"));
  EXPECT_EQ(file.size(), 3u);
  std::byte buffer[4];
  expect_error<IoError>([&] { file.read_at(0, buffer); }, {"ended at byte 3", "truncated"});
  expect_error<IoError>([&] { read_whole_file(file.path(), 2); }, {"3 bytes", "limit of 2"});
  EXPECT_EQ(read_whole_file(file.path(), 3), "abc");
  expect_error<IoError>([&] { read_whole_file(std::string("a\0b", 3), 3); }, {"NUL"});
}

// Reading them would wait for ever, or never end.
TEST(InputFile, PipesAndDevicesAreRefused) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder.file("pipe"), std::string("/dev/zero"), std::string("/dev/full")}) {
    expect_error<IoError>([&] { InputFile file(path); }, {path, "not a regular file"});
    expect_error<IoError>([&] { read_whole_file(path, 100); }, {path, "not a regular file"});
    expect_error<IoError>([&] { AppendFile file(path); }, {path, "not a regular file"});
  }
  expect_error<IoError>([&] { read_whole_file(folder.path(), 100); }, {"a directory"});
}

TEST(FolderEntries, AreNames) {
  const TemporaryFolder folder;
  EXPECT_TRUE(folder_entries(folder.path()).empty());
  for (const char* name : {"a", ".b", "..c"}) folder.put(name, "");
  std::vector<std::string> names = folder_entries(folder.path());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"..c", ".b", "a"}));
  EXPECT_TRUE(folder_entries(folder.file("none")).empty());
  expect_error<IoError>([&] { folder_entries(folder.file("a")); }, {folder.file("a"), "Not a directory"});
}

TEST(AppendFile, AppendsCutsAndReplacesLinks) {
  const TemporaryFolder folder;
  {
    AppendFile file(folder.file("f"));
    file.append("one\n");
    file.append("");
    EXPECT_EQ(folder.get("f"), "one\n") << "each piece is there at once";
  }
  AppendFile file(folder.file("f"));
  EXPECT_EQ(file.size(), 4u);
  file.append("two\n");
  file.cut(6);
  file.cut(100);
  EXPECT_EQ(file.size(), 6u);
  file.append("!");
  EXPECT_EQ(folder.get("f"), "one\ntw!");
  ASSERT_EQ(::symlink(folder.file("f").c_str(), folder.file("link").c_str()), 0);
  AppendFile(folder.file("link")).append("new");
  EXPECT_EQ(folder.get("link"), "new");
  EXPECT_EQ(folder.get("f"), "one\ntw!") << "what a link points to is not touched";
  expect_error<IoError>([&] { AppendFile other(folder.file("no/such")); }, {"no/such", "No such file"});
  expect_error<IoError>([&] { AppendFile other(folder.path()); }, {folder.path()});
}

// As a write that the disk has no room for.
TEST(AppendFile, APieceThatDoesNotFitIsNotThere) {
  const TemporaryFolder folder;
  AppendFile file(folder.file("f"));
  file.append("first\n");
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{10, before.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  expect_error<IoError>([&] { file.append("second\n"); }, {"cannot write", "File too large"});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(folder.get("f"), "first\n");
  file.append("third\n");
  EXPECT_EQ(folder.get("f"), "first\nthird\n");
}

// A process that is killed drops its locks, as the child here does.
TEST(DirectoryLock, RemovesTheOrphansOfKilledWriters) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file(folder.file("model.safetensors"));
    file.write("half", 4);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_EQ(folder.entries(), 1u) << "the child leaves no orphan";
  for (const char* other : {"notes.tmp-1", "model.tmp-1-x", ".tmp-1-2"}) folder.put(other, "not ours");
  ASSERT_EQ(::mkdir(folder.file("folder.tmp-1-2").c_str(), 0700), 0);
  ASSERT_EQ(::symlink("/dev/null", folder.file("link.tmp-1-2").c_str()), 0);
  AtomicFile living(folder.file("living"));
  living.write("text", 4);
  AtomicFile synced(folder.file("synced"));
  synced.sync();
  const DirectoryLock lock(folder.path());
  EXPECT_EQ(folder.entries(), 8u) << "five that are not ours, two being written, the lock";
  living.commit();
  synced.commit();
  EXPECT_EQ(folder.get("living"), "text");
}

TEST(DirectoryLock, AdmitsOneAndNamesIt) {
  const TemporaryFolder folder;
  {
    const DirectoryLock lock(folder.path());
    expect_error<CheckpointError>([&] { DirectoryLock second(folder.path()); },
                                  {folder.path(), "process " + std::to_string(::getpid()) + " on "});
  }
  const DirectoryLock again(folder.path());
  expect_error<IoError>([&] { DirectoryLock lock(folder.file("none")); }, {"none", "No such file"});
}

TEST(DirectoryLock, EndsWithItsProcess) {
  const TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const DirectoryLock lock(folder.path());
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  expect_error<CheckpointError>([&] { DirectoryLock lock(folder.path()); },
                                {"process " + std::to_string(child)});
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const DirectoryLock lock(folder.path());
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace heed::test
