// SPDX-License-Identifier: Apache-2.0
// What a program without the library has in one of its source files.
#include <rlock/src.hpp>
