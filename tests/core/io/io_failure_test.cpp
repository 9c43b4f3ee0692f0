// What a failing disk, a killed process or a power failure may leave behind.
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <heed/core/io/unnamed_file.h>

#include "../../support/expect_error.h"
#include "../../support/temporary_folder.h"
#include "faulty_system.h"
#include "safetensors_bytes.h"

namespace heed::test {
namespace {

/// Saves three tensors all of whose elements are `value`.
void save(const std::string& path, float value) {
  const std::vector<float> a(600, value);
  const std::vector<float> b(7, value);
  const bool flag = true;
  const TensorData tensors[] = {{{"a", DType::f32, {20, 30}}, a.data()},
                                {{"flag", DType::boolean, {}}, &flag},
                                {{"b", DType::f32, {7}}, b.data()}};
  save_safetensors(path, tensors);
}

/// The value that save() was given, if the file is sound.
float load(const std::string& path) {
  const SafetensorsReader reader(path);
  std::vector<float> a(600);
  reader.read(reader.at("a"), a.data(), a.size() * 4);
  float b[7];
  reader.read(reader.at("b"), b, sizeof b);
  bool flag = false;
  reader.read(reader.at("flag"), &flag, 1);
  EXPECT_TRUE(flag);
  for (const float x : a) EXPECT_EQ(x, a[0]);
  for (const float x : b) EXPECT_EQ(x, a[0]);
  return a[0];
}

int64_t calls_of_a_save(const std::string& folder, const std::string& path) {
  FaultySystem system(folder);
  save(path, 1);
  return system.calls();
}

struct Outcome {
  std::string text;  // of the error, empty without one
  std::string failed_call;
  bool renamed;
};

Outcome save_with_failure(const std::string& folder, const std::string& path, int64_t at, int error,
                          bool persistent) {
  FaultySystem system(folder, at, error);
  if (persistent) system.persist();
  std::string text;
  try {
    save(path, 2);
  } catch (const IoError& failure) {
    text = failure.what();
  }
  bool renamed = false;
  for (const SystemCall& call : system.log()) renamed |= call.kind == SystemCall::kRename;
  return {text, system.failed_call(), renamed};
}

TEST(IoFailure, EachCallOfASaveMayFailAndTheOldFileStays) {
  const TemporaryFolder folder;
  const std::string path = folder.file("model.safetensors");
  const int64_t calls = calls_of_a_save(folder.path(), path);
  ASSERT_GT(calls, 10);
  std::set<std::string> failed;
  for (const bool persistent : {false, true}) {
    for (const int error : {EIO, ENOSPC, EACCES}) {
      for (int64_t at = 0; at < calls; ++at) {
        save(path, 1);
        const Outcome outcome = save_with_failure(folder.path(), path, at, error, persistent);
        failed.insert(outcome.failed_call);
        const float now = load(path);
        if (outcome.text.empty()) {
          EXPECT_EQ(now, 2) << "call " << at << " (" << outcome.failed_call << ") failed unnoticed";
        } else {
          EXPECT_NE(outcome.text.find(std::strerror(error)), std::string::npos) << outcome.text;
          EXPECT_EQ(now, outcome.renamed ? 2 : 1) << "call " << at << " (" << outcome.failed_call << ")";
        }
      }
    }
  }
  EXPECT_EQ(folder.entries(), 1u) << "a temporary file was left";
  EXPECT_EQ(failed, (std::set<std::string>{"open", "pwrite", "pread", "fsync", "close", "rename"}));
}

TEST(IoFailure, EachCallOfAnUnnamedFileMayFail) {
  const TemporaryFolder folder;
  const std::vector<std::byte> bytes(3'000'000, std::byte{7});
  const auto use = [&] {
    UnnamedFile file(folder.path());
    file.append(bytes);
    file.append({bytes.data(), 5});
    file.flush();
    std::vector<std::byte> back(6);
    file.read_at(bytes.size() - 1, back);
    EXPECT_EQ(back, std::vector<std::byte>(6, std::byte{7}));
    EXPECT_EQ(file.size(), bytes.size() + 5);
    EXPECT_EQ(folder.entries(), 0u);
  };
  int64_t calls = 0;
  {
    FaultySystem system(folder.path());
    use();
    calls = system.calls();
  }
  ASSERT_EQ(calls, 5);  // open, two writes, read, close
  for (int64_t at = 0; at < calls; ++at) {
    FaultySystem system(folder.path(), at, ENOSPC);
    try {
      use();
      EXPECT_EQ(system.failed_call(), "close");  // of no consequence
    } catch (const IoError& failure) {
      EXPECT_NE(std::string(failure.what()).find("temporary file in"), std::string::npos);
      EXPECT_NE(std::string(failure.what()).find("No space left"), std::string::npos);
    }
    EXPECT_EQ(folder.entries(), 0u);
  }
  for (const int64_t at : {0, 1, 2, 3}) {
    FaultySystem interrupted(folder.path(), at, EINTR);
    use();
  }
  for (const int64_t at : {1, 2, 3}) {
    FaultySystem shortened(folder.path(), at, EINTR, true);
    use();
  }
}

TEST(IoFailure, InterruptedAndShortCallsAreCarriedOn) {
  const TemporaryFolder folder;
  const std::string path = folder.file("model.safetensors");
  const int64_t calls = calls_of_a_save(folder.path(), path);
  for (int64_t at = 0; at < calls; ++at) {
    for (const bool short_write : {false, true}) {
      FaultySystem system(folder.path(), at, EINTR, short_write);
      try {
        save(path, 3);
      } catch (const IoError& failure) {  // a rename is never interrupted
        EXPECT_EQ(system.failed_call(), "rename") << failure.what();
      }
    }
    EXPECT_EQ(load(path), 3);
  }
}

TEST(IoFailure, EachCallOfALoadMayFail) {
  const TemporaryFolder folder;
  const std::string path = folder.file("model.safetensors");
  save(path, 1);
  int64_t calls = 0;
  {
    FaultySystem system(folder.path());
    load(path);
    calls = system.calls();
  }
  for (int64_t at = 0; at < calls; ++at) {
    FaultySystem system(folder.path(), at, EIO);
    try {
      EXPECT_EQ(load(path), 1);
      EXPECT_EQ(system.failed_call(), "close");  // of no consequence after reading
    } catch (const IoError& failure) {
      EXPECT_NE(std::string(failure.what()).find("Input/output error"), std::string::npos);
    }
  }
  for (int64_t at = 0; at < calls; ++at) {
    const FaultySystem interrupted(folder.path(), at, EINTR);
    EXPECT_EQ(load(path), 1);
  }
  for (int64_t at = 0; at < calls; ++at) {
    const FaultySystem shortened(folder.path(), at, EINTR, true);
    EXPECT_EQ(load(path), 1);
  }
}

/// The folder's files as the disk may hold them after a power failure.
using Disk = std::map<std::string, std::string>;

/// Writes that no sync has yet forced to the disk may be there, missing, or cut short; so may renames.
std::vector<Disk> disks_after(const std::vector<SystemCall>& log, size_t happened, const Disk& before) {
  std::vector<Disk> disks;
  for (int fate = 0; fate < 5; ++fate) {  // of unsynced data: there, lost, cut, zeros, last write lost
    for (const bool renamed : {false, true}) {
      Disk content = before;  // what each name was last given
      std::set<std::string> synced;
      size_t last_write = 0;
      for (size_t i = 0; i < happened; ++i) {
        if (log[i].kind == SystemCall::kSyncFile) synced.insert(log[i].path);
        if (log[i].kind == SystemCall::kWrite) last_write = i;
      }
      const bool folder_synced = [&] {
        bool seen = false;
        for (size_t i = 0; i < happened; ++i) seen |= log[i].kind == SystemCall::kSyncFolder;
        return seen;
      }();
      for (size_t i = 0; i < happened; ++i) {
        const SystemCall& call = log[i];
        std::string& file = content[call.path];
        if (call.kind == SystemCall::kWrite) {
          std::string data = call.data;
          if (!synced.count(call.path)) {
            if (fate == 1 || (fate == 4 && i == last_write)) data.clear();
            if (fate == 2) data.resize(data.size() / 2);
            if (fate == 3) data.assign(data.size(), '\0');
          }
          if (file.size() < call.offset + data.size()) file.resize(call.offset + data.size());
          file.replace(call.offset, data.size(), data);
        } else if (call.kind == SystemCall::kRename && (renamed || folder_synced)) {
          content[call.target] = file;
          content.erase(call.path);
        }
      }
      disks.push_back(content);
    }
  }
  return disks;
}

TEST(IoFailure, APowerFailureLeavesTheOldFileOrTheNewOne) {
  const TemporaryFolder folder;
  const std::string path = folder.file("model.safetensors");
  save(path, 1);
  const Disk before{{path, folder.get("model.safetensors")}};
  std::vector<SystemCall> log;
  {
    FaultySystem system(folder.path());
    save(path, 2);
    log = system.log();
  }
  const TemporaryFolder replay;
  int states = 0;
  for (size_t happened = 0; happened <= log.size(); ++happened) {
    for (const Disk& disk : disks_after(log, happened, before)) {
      const float value = load(replay.put("model.safetensors", disk.at(path)));
      EXPECT_TRUE(value == 1 || value == 2);
      EXPECT_TRUE(value == 2 || happened < log.size()) << "a completed save was lost";
      ++states;
    }
  }
  EXPECT_GE(states, 80);
}

TEST(IoFailure, AKilledProcessLeavesTheOldFileOrTheNewOne) {
  const TemporaryFolder folder;
  const std::string path = folder.file("model.safetensors");
  save(path, 0);
  for (int round = 0; round < 40; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int i = 1;; ++i) save(path, static_cast<float>(i));
    }
    ::usleep(static_cast<useconds_t>(1000 + 731 * round % 9000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    EXPECT_GE(load(path), 0);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      const std::string name = entry.path().filename().string();
      if (name == "model.safetensors") continue;
      EXPECT_TRUE(is_temporary_file(name)) << name;
      std::filesystem::remove(entry.path());
    }
  }
}

}  // namespace
}  // namespace heed::test
