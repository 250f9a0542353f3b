// SPDX-License-Identifier: Apache-2.0
// A test program without the library has this in one source file, beside all of rlock.
#include <rlock/testing_src.hpp>
