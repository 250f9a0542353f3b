// SPDX-License-Identifier: Apache-2.0
// A program without the library has this in one of its source files.
#include <rlock/src.hpp>
