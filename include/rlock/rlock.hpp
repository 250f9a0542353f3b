// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/client.hpp>
#include <rlock/duration.hpp>
#include <rlock/error.hpp>
#include <rlock/inspection.hpp>
#include <rlock/lease.hpp>
#include <rlock/lock.hpp>
#include <rlock/log.hpp>
#include <rlock/mutex.hpp>
#include <rlock/operation.hpp>
#include <rlock/options.hpp>
#include <rlock/owner.hpp>
#include <rlock/result.hpp>
#include <rlock/stats.hpp>
#include <rlock/version.hpp>
