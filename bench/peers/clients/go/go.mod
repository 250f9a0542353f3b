// SPDX-License-Identifier: Apache-2.0
module peers

go 1.24

require (
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/gomodule/redigo v1.9.3
	github.com/redis/rueidis v1.0.79
	golang.org/x/sys v0.50.0
)
