#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include <heed/core/base/threads/cpu_quota.h>

namespace heed {
namespace {

namespace fs = std::filesystem;
using detail::cpus_of_quota;
using detail::kNoQuota;

// A folder with the files of a system.
class CpuQuota : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root_ / "proc/self"); }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void version2(const std::string& group, const std::string& mounted = "/") const {
    write("proc/self/mountinfo", "23 1 0:21 / /proc rw - proc proc rw\n31 23 0:26 " + mounted +
                                     " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
    write("proc/self/cgroup", "0::" + group + "\n");
  }
  void version1(const std::string& group, const std::string& mounted = "/") const {
    write("proc/self/mountinfo",
          "33 31 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n32 31 0:29 " + mounted +
              " /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
    write("proc/self/cgroup", "4:cpuset:/other\n3:cpu,cpuacct:" + group + "\n0::/\n");
  }
  void quota1(const std::string& group, const std::string& quota, const std::string& period) const {
    write("sys/fs/cgroup/cpu,cpuacct" + group + "/cpu.cfs_quota_us", quota + "\n");
    write("sys/fs/cgroup/cpu,cpuacct" + group + "/cpu.cfs_period_us", period + "\n");
  }
  void quota2(const std::string& group, const std::string& text) const {
    write("sys/fs/cgroup" + group + "/cpu.max", text + "\n");
  }
  int found() const { return cpus_of_quota(root_.string()); }

  const fs::path root_ = fs::path(::testing::TempDir()) / ("heed_quota_" + std::to_string(getpid()));
};

TEST_F(CpuQuota, NoneWithoutFiles) {
  EXPECT_EQ(found(), kNoQuota);
  version2("/a");
  EXPECT_EQ(found(), kNoQuota);
  version1("/a");
  EXPECT_EQ(found(), kNoQuota);
}

TEST_F(CpuQuota, Version2) {
  version2("/a");
  quota2("/a", "max 100000");
  EXPECT_EQ(found(), kNoQuota);
  quota2("/a", "300000 100000");
  EXPECT_EQ(found(), 3);
}

TEST_F(CpuQuota, Version1) {
  version1("/a");
  quota1("/a", "-1", "100000");
  EXPECT_EQ(found(), kNoQuota);
  quota1("/a", "50000", "25000");
  EXPECT_EQ(found(), 2);
}

TEST_F(CpuQuota, FractionsAreRoundedToTheNearest) {
  version2("/");
  for (const auto& [quota, cpus] :
       {std::pair{"1000", 1}, {"149999", 1}, {"150000", 2}, {"249999", 2}, {"250000", 3}}) {
    quota2("", std::string(quota) + " 100000");
    EXPECT_EQ(found(), cpus) << quota;
  }
}

TEST_F(CpuQuota, TheLeastOfTheGroupsAround) {
  version2("/a/b/c");
  quota2("/a", "200000 100000");
  quota2("/a/b", "max 100000");
  quota2("/a/b/c", "700000 100000");
  EXPECT_EQ(found(), 2);
  version1("/a/b");
  quota1("", "-1", "100000");
  quota1("/a", "600000", "100000");
  quota1("/a/b", "500000", "100000");
  EXPECT_EQ(found(), 5);
}

TEST_F(CpuQuota, BothVersions) {
  write("proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n41 31 0:38 / /sys/fs/cgroup/unified rw - "
        "cgroup2 cgroup2 rw\n");
  write("proc/self/cgroup", "1:cpu:/a\n0::/b\n");
  write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "400000\n");
  write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(found(), 4);
  write("sys/fs/cgroup/unified/b/cpu.max", "200000 100000\n");
  EXPECT_EQ(found(), 2);
}

// A container sees its group as the root of what is mounted, and another's group not at all.
TEST_F(CpuQuota, WhereAGroupIsMounted) {
  version1("/docker/1234/inner", "/docker/1234");
  quota1("", "400000", "100000");
  quota1("/inner", "300000", "100000");
  EXPECT_EQ(found(), 3);
  version1("/elsewhere", "/docker/1234");
  EXPECT_EQ(found(), 4);
  version2("/../other");
  quota2("", "600000 100000");
  EXPECT_EQ(found(), 6);
}

TEST_F(CpuQuota, ABlankInAName) {
  write("proc/self/mountinfo", "31 23 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n");
  write("proc/self/cgroup", "0::/a b\n");
  write("my groups/a b/cpu.max", "200000 100000\n");
  EXPECT_EQ(found(), 2);
}

TEST_F(CpuQuota, WhatIsNoQuota) {
  version2("/a");
  for (const char* text :
       {"", "100000", "x y", "0 100000", "100000 0", "-5 100000", "99999999999999999999 100000"}) {
    quota2("/a", text);
    EXPECT_EQ(found(), kNoQuota) << text;
  }
  write("proc/self/mountinfo", "rubbish\n- \n1 2 3 - cgroup2\n");
  EXPECT_EQ(found(), kNoQuota);
}

TEST_F(CpuQuota, OfThisProcessCanBeRead) { EXPECT_GE(cpus_of_quota(), 1); }

}  // namespace
}  // namespace heed
