// SPDX-License-Identifier: Apache-2.0
// What a test program without the library has in one of its source files, beside all of rlock.
#include <rlock/testing_src.hpp>
