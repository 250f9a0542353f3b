# SPDX-License-Identifier: Apache-2.0
"""Conan 2 recipe of the source tree that it stands in: conan create <tree>/cmake/packaging/conan"""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir

required_conan_version = ">=2.0"

KEPT = ("CMakeLists.txt", "LICENSE", "include/*", "src/*", "lua/*", "cmake/*")


class RLockConan(ConanFile):
    name = "rlock"
    description = "Redisson-compatible distributed locks for C++20 on Redis"
    license = "Apache-2.0"
    topics = ("redis", "distributed-lock", "redisson", "concurrency")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "with_tls": [True, False]}
    default_options = {"shared": False, "fPIC": True, "with_tls": True, "fmt/*:header_only": True}
    implements = ["auto_shared_fpic"]

    @property
    def _tree(self):
        return os.path.abspath(os.path.join(self.recipe_folder, "..", "..", ".."))

    def set_version(self):
        # The version is written once, in the public header.
        header = load(self, os.path.join(self._tree, "include", "rlock", "version.hpp"))
        numbers = re.findall(r"#define RLOCK_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header)
        self.version = ".".join(numbers)

    def export_sources(self):
        for pattern in KEPT:
            copy(self, pattern, src=self._tree, dst=self.export_sources_folder, excludes="*/packaging/*")

    def layout(self):
        cmake_layout(self)

    def validate(self):
        check_min_cppstd(self, 20)

    def requirements(self):
        self.requires("hiredis/[>=1.1 <2]")
        self.requires("libuv/[>=1.40 <2]")
        self.requires("fmt/[>=9 <12]")
        if self.options.with_tls:
            self.requires("openssl/[>=3.0 <4]")

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["RLOCK_BUILD_TESTS"] = False
        toolchain.cache_variables["RLOCK_BUILD_EXAMPLES"] = False
        toolchain.cache_variables["RLOCK_BUILD_CLI"] = False
        # Otherwise what is in the package would depend on the machine that builds it.
        toolchain.cache_variables["RLOCK_WITH_TESTING"] = False
        toolchain.cache_variables["RLOCK_WITH_PROMETHEUS"] = "OFF"
        toolchain.cache_variables["RLOCK_UNITY_BUILD"] = True
        toolchain.cache_variables["RLOCK_WITH_TLS"] = bool(self.options.with_tls)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        # Conan writes files of its own for those who use the package.
        for folder in (("lib", "cmake"), ("lib", "pkgconfig"), ("share", "doc")):
            rmdir(self, os.path.join(self.package_folder, *folder))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "rlock")
        self.cpp_info.set_property("cmake_target_name", "rlock::rlock")
        self.cpp_info.set_property("pkg_config_name", "rlock")
        self.cpp_info.libs = ["rlock"]
        if not self.options.shared:
            self.cpp_info.defines = ["RLOCK_STATIC_DEFINE"]
        if self.settings.os == "Linux":
            self.cpp_info.system_libs = ["pthread"]
