// SPDX-License-Identifier: Apache-2.0

// Two lock clients in Go that obey the commands of measure.py (see README.md) on standard input.
//
// Usage: peer redsync|rueidislock PORT [first-lock]
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"golang.org/x/sys/unix"
)

const lease = 30 * time.Second

type lock interface {
	Lock() error
	Unlock() error
}

// A waiter of redsync polls, 50 to 250 ms between its tries; it may try for ever here.
type redsyncLock struct{ mutex *redsync.Mutex }

func (l redsyncLock) Lock() error { return l.mutex.Lock() }
func (l redsyncLock) Unlock() error {
	ok, err := l.mutex.Unlock()
	if err == nil && !ok {
		err = errors.New("not unlocked")
	}
	return err
}

// A lock of rueidislock is renewed by itself, and its waiters are woken by client-side caching.
type rueidisLock struct {
	locker rueidislock.Locker
	name   string
	cancel context.CancelFunc
}

func (l *rueidisLock) Lock() (err error) {
	_, l.cancel, err = l.locker.WithContext(context.Background(), l.name)
	return err
}
func (l *rueidisLock) Unlock() error {
	l.cancel()
	return nil
}

// connect returns what makes locks of the client.
func connect(client, port string) func(name string) lock {
	address := "127.0.0.1:" + port
	if client == "redsync" {
		pool := &redis.Pool{
			MaxIdle:     128,
			IdleTimeout: 240 * time.Second,
			Dial:        func() (redis.Conn, error) { return redis.Dial("tcp", address) },
		}
		locks := redsync.New(redsyncpool.NewPool(pool))
		return func(name string) lock {
			const endless = 1 << 30
			return redsyncLock{locks.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(endless))}
		}
	}
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{address}},
		KeyMajority:    1,
		KeyValidity:    lease,
		NoLoopTracking: true,
	})
	must(err)
	return func(name string) lock { return &rueidisLock{locker: locker, name: name} }
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// now is CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share.
func now() int64 {
	var t unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &t))
	return t.Nano()
}

type worker struct {
	done      atomic.Int64
	latencies []int64
	_         [64]byte
}

type load struct {
	workers          []worker
	ended, measuring atomic.Bool
}

func (l *load) total() (sum int64) {
	for i := range l.workers {
		sum += l.workers[i].done.Load()
	}
	return
}

// run lets goroutines do the operation again and again, warms up, and measures.
func run(goroutines int, warmUp, seconds float64, operation func(i int)) string {
	l := load{workers: make([]worker, goroutines)}
	var running sync.WaitGroup
	for i := range goroutines {
		running.Add(1)
		go func() {
			defer running.Done()
			mine := &l.workers[i]
			for !l.ended.Load() {
				began := now()
				operation(i)
				if l.measuring.Load() {
					mine.latencies = append(mine.latencies, now()-began)
				}
				mine.done.Add(1)
			}
		}()
	}
	pause(warmUp)
	fmt.Println("BEGIN")
	l.measuring.Store(true)
	began, before := now(), l.total()
	pause(seconds)
	operations, took := l.total()-before, float64(now()-began)/1e9
	l.measuring.Store(false)
	fmt.Println("END")
	// The driver reads the processor times of all threads now.
	pause(0.06)
	l.ended.Store(true)
	running.Wait()
	var all []int64
	for i := range l.workers {
		all = append(all, l.workers[i].latencies...)
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	percentile := func(part float64) float64 {
		if len(all) == 0 {
			return 0
		}
		return float64(all[min(len(all)-1, int(float64(len(all))*part))]) / 1e3
	}
	return fmt.Sprintf("%d %.6f %.1f %.1f", operations, took, percentile(.5), percentile(.99))
}

func pause(seconds float64) { time.Sleep(time.Duration(seconds * 1e9)) }

// section counts those that were inside at the same time as another one.
type section struct{ inside, overlaps atomic.Int64 }

func (s *section) pass() {
	if s.inside.Add(1) != 1 {
		s.overlaps.Add(1)
	}
	s.inside.Add(-1)
}

func makeAll(count int, one func(i int) lock) []lock {
	locks := make([]lock, count)
	for i := range locks {
		locks[i] = one(i)
	}
	return locks
}

func handOff(l lock, seconds float64, file string) {
	f, err := os.Create(file)
	must(err)
	out := bufio.NewWriter(f)
	end := now() + int64(seconds*1e9)
	count := 0
	fmt.Println("BEGIN")
	for now() < end {
		called := now()
		must(l.Lock())
		returned := now()
		time.Sleep(1500 * time.Microsecond)
		unlocking := now()
		must(l.Unlock())
		fmt.Fprintln(out, called, returned, unlocking)
		count++
		time.Sleep(500 * time.Microsecond)
	}
	must(out.Flush())
	must(f.Close())
	fmt.Println("END")
	fmt.Println("RESULT", count)
}

func wait(locks []lock) {
	var running sync.WaitGroup
	var inside section
	var passed, first, last atomic.Int64
	for _, l := range locks {
		running.Add(1)
		go func() {
			defer running.Done()
			must(l.Lock())
			first.CompareAndSwap(0, now())
			inside.pass()
			passed.Add(1)
			must(l.Unlock())
			last.Store(now())
		}()
	}
	fmt.Println("BEGIN")
	running.Wait()
	fmt.Println("RESULT", passed.Load(), inside.overlaps.Load(), first.Load(), last.Load())
}

func main() {
	newLock := connect(os.Args[1], os.Args[2])
	if len(os.Args) > 3 {
		l := newLock("peers:first")
		must(l.Lock())
		fmt.Println("LOCKED")
		must(l.Unlock())
		return
	}
	fmt.Println("READY")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words := strings.Fields(in.Text())
		number := func(i int) float64 {
			n, err := strconv.ParseFloat(words[i], 64)
			must(err)
			return n
		}
		switch words[0] {
		case "pairs":
			locks := makeAll(int(number(1)), func(i int) lock { return newLock("peers:pairs:" + strconv.Itoa(i)) })
			fmt.Println("RESULT", run(len(locks), number(2), number(3), func(i int) {
				must(locks[i].Lock())
				must(locks[i].Unlock())
			}))
		case "contend":
			locks := makeAll(int(number(2)), func(int) lock { return newLock(words[1]) })
			var inside section
			result := run(len(locks), number(3), number(4), func(i int) {
				must(locks[i].Lock())
				inside.pass()
				must(locks[i].Unlock())
			})
			fmt.Println("RESULT", result, inside.overlaps.Load())
		case "handoff":
			handOff(newLock(words[1]), number(2), words[3])
		case "waiters":
			wait(makeAll(int(number(2)), func(int) lock { return newLock(words[1]) }))
		case "quit":
			return
		default:
			fmt.Println("REFUSED not offered")
		}
	}
}
