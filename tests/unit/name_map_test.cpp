// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/base/name_map.hpp>

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace rlock::detail {
namespace {

std::string refusalOf(const Options& options, std::string_view name) {
  try {
    return "mapped to " + NameMap(options).toServer(name);
  } catch (const Error& error) {
    EXPECT_EQ(error.errc(), Errc::invalidArgument);
    EXPECT_EQ(error.key(), name);
    return error.message();
  }
}

TEST(NameMap, WithoutOptionsANameIsItself) {
  const Options options;
  EXPECT_EQ(NameMap(options).toServer("17"), "17");
  EXPECT_EQ(NameMap(options).toApplication("17"), "17");
  EXPECT_EQ(NameMap(options).patternToServer("a*"), "a*");
  EXPECT_EQ(refusalOf(options, ""), "a name of 0 bytes is not between 1 and 65536 bytes long");
  EXPECT_EQ(refusalOf(options, std::string(65537, 'x')),
            "a name of 65537 bytes is not between 1 and 65536 bytes long");
}

TEST(NameMap, APrefixComesAndGoes) {
  Options options;
  options.namePrefix = "a[*]\\?:";
  const NameMap map(options);
  EXPECT_EQ(map.toServer("17"), "a[*]\\?:17");
  EXPECT_EQ(map.toApplication("a[*]\\?:17"), "17");
  EXPECT_EQ(map.toApplication("17"), "17");
  EXPECT_EQ(map.patternToServer("b*"), "a\\[\\*\\]\\\\\\?:b*");
  EXPECT_EQ(map.toServer(std::string(65536 - 7, 'x')).size(), 65536U);
  EXPECT_NE(refusalOf(options, std::string(65536 - 6, 'x')).find("of 65537 bytes"),
            std::string::npos);
  EXPECT_NE(refusalOf(options, "").find("of 0 bytes"), std::string::npos);
}

TEST(NameMap, AMapperIsAskedOnceAndItsAnswerIsChecked) {
  Options options;
  int asked = 0;
  options.nameMapper = [&asked](std::string_view name) -> std::string {
    ++asked;
    if (name == "throws") {
      throw std::runtime_error("no tenant");
    }
    if (name == "throws a number") {
      throw 1;
    }
    return name == "empty"  ? ""
           : name == "long" ? std::string(65537, 'x')
                            : "m:" + std::string(name);
  };
  const NameMap map(options);
  EXPECT_EQ(map.toServer("17"), "m:17");
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(map.toApplication("m:17"), "m:17");
  EXPECT_EQ(refusalOf(options, "throws"), "nameMapper threw: no tenant");
  EXPECT_EQ(refusalOf(options, "throws a number"), "nameMapper threw");
  EXPECT_NE(refusalOf(options, "empty").find("nameMapper returned"), std::string::npos);
  EXPECT_NE(refusalOf(options, "long").find("of 65537 bytes"), std::string::npos);
}

}  // namespace
}  // namespace rlock::detail
