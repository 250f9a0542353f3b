// SPDX-License-Identifier: Apache-2.0

// The whole product once more, with schedule points.
#include <rlock/src.hpp>
