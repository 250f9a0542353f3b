// SPDX-License-Identifier: Apache-2.0
#include "support/temp_dir.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <utility>

namespace rlock::test {
namespace {

TEST(TempDir, IsRemovedWithItsContent) {
  std::filesystem::path path;
  {
    const TempDir dir;
    path = dir.path();
    std::filesystem::create_directory(path / "sub");
    std::ofstream(dir.file("sub/file")) << "text";
    EXPECT_TRUE(std::filesystem::exists(path / "sub" / "file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TempDir, MovesAndIsUnique) {
  TempDir first;
  const std::filesystem::path path = first.path();
  const TempDir second = std::move(first);
  EXPECT_EQ(second.path(), path);
  EXPECT_TRUE(std::filesystem::exists(path));
  const TempDir third;
  EXPECT_NE(third.path(), path);
}

}  // namespace
}  // namespace rlock::test
