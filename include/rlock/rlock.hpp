// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/back_off.hpp>
#include <rlock/capabilities.hpp>
#include <rlock/client.hpp>
#include <rlock/count_down_latch.hpp>
#include <rlock/duration.hpp>
#include <rlock/error.hpp>
#include <rlock/fenced_lock.hpp>
#include <rlock/inspection.hpp>
#include <rlock/lease.hpp>
#include <rlock/lock.hpp>
#include <rlock/log.hpp>
#include <rlock/multi_lock.hpp>
#include <rlock/mutex.hpp>
#include <rlock/operation.hpp>
#include <rlock/options.hpp>
#include <rlock/owner.hpp>
#include <rlock/permit.hpp>
#include <rlock/permit_expirable_semaphore.hpp>
#include <rlock/read_write_lock.hpp>
#include <rlock/result.hpp>
#include <rlock/semaphore.hpp>
#include <rlock/stats.hpp>
#include <rlock/sync_policy.hpp>
#include <rlock/version.hpp>
