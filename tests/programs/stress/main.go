// A program that makes everything hard that a tracer of goroutines lives on, and checks its own results: stacks that grow, shrink and
// move, the collector all the time, signals of the CPU profiler, coroutines (Go 1.23 and later), and calls to C and back (with cgo).
//
// In: a line on standard input to begin, how many goroutines work, and how many tasks each does, or for how many seconds. Out: how
// many tasks were done, how many results were wrong, and what was tried.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// What is tried besides; each has a number to do its work with, and gives one that depends on nothing else.
var tried = []struct {
	name string
	work func(uint64) uint64
}{
	{"stacks", func(seed uint64) uint64 { return deep(int(200+seed%2000), seed) }},
	{"channels", hops},
	{"locks", locked},
	{"garbage", garbage},
	{"sleeps", func(seed uint64) uint64 {
		time.Sleep(time.Duration(seed%300) * time.Microsecond)
		return mixed(seed)
	}},
}

func mixed(seed uint64) uint64 {
	seed ^= seed >> 33
	seed *= 0xff51afd7ed558ccd
	return seed ^ seed>>29
}

// Grows its stack to some hundred KB, with pointers into it.
//
//go:noinline
func deep(levels int, seed uint64) uint64 {
	var room [12]uint64
	at := &room[levels%len(room)]
	*at = mixed(seed + uint64(levels))
	if levels == 0 {
		return *at
	}
	below := deep(levels-1, seed)
	return below ^ *at + uint64(levels)
}

// Sends a number through goroutines that are made for it.
func hops(seed uint64) uint64 {
	const goroutines = 4
	first := make(chan uint64)
	from := first
	for number := 0; number < goroutines; number++ {
		to := make(chan uint64)
		go hop(from, to)
		from = to
	}
	first <- seed
	return <-from
}

//go:noinline
func hop(from <-chan uint64, to chan<- uint64) {
	to <- mixed(<-from)
}

var lock sync.Mutex
var held uint64

func locked(seed uint64) uint64 {
	lock.Lock()
	defer lock.Unlock()
	held = seed
	runtime.Gosched()
	return mixed(held)
}

func garbage(seed uint64) uint64 {
	all := map[uint64]string{}
	for number := uint64(0); number < 200; number++ {
		all[seed+number] = strconv.FormatUint(seed^number, 10)
	}
	sum := uint64(0)
	for number := uint64(0); number < 200; number++ {
		value, _ := strconv.ParseUint(all[seed+number], 10, 64)
		sum += mixed(value)
	}
	return sum
}

var done, wrong atomic.Uint64

// One task, the request of the tests: does one thing twice, and compares.
//
//go:noinline
func task(number uint64) {
	one := tried[number%uint64(len(tried))]
	first := one.work(number)
	if second := one.work(number); first != second {
		wrong.Add(1)
		fmt.Fprintf(os.Stderr, "%s of %d: %#x and %#x\n", one.name, number, first, second)
	}
	done.Add(1)
}

func worker(first, step uint64, goes func(uint64) bool, wait *sync.WaitGroup) {
	defer wait.Done()
	for number := uint64(0); goes(number); number++ {
		task(first + number*step)
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: stress WORKERS TASKS|SECONDSs")
		os.Exit(2)
	}
	workers, _ := strconv.Atoi(os.Args[1])
	amount := strings.TrimSuffix(os.Args[2], "s")
	most, err := strconv.ParseUint(amount, 10, 64)
	if err != nil || workers <= 0 {
		fmt.Fprintln(os.Stderr, "no number")
		os.Exit(2)
	}
	debug.SetGCPercent(1)
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	input := bufio.NewReader(os.Stdin)
	_, _ = input.ReadString('\n')
	goes := func(number uint64) bool { return number < most }
	if amount != os.Args[2] {
		end := time.Now().Add(time.Duration(most) * time.Second)
		goes = func(uint64) bool { return time.Now().Before(end) }
	}
	var wait sync.WaitGroup
	wait.Add(workers)
	for number := 0; number < workers; number++ {
		go worker(uint64(number), uint64(workers), goes, &wait)
	}
	wait.Wait()
	pprof.StopCPUProfile()
	var names []string
	for _, one := range tried {
		names = append(names, one.name)
	}
	fmt.Printf("done %d tasks, %d wrong: %s\n", done.Load(), wrong.Load(), strings.Join(names, " "))
	_, _ = input.ReadString('\n')
}
