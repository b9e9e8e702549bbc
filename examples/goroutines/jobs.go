package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// How long somebody has what a job waits for.
var held = 3 * time.Millisecond

// How long a job computes, ns.
const busy = 2_000_000

// Of so many jobs of a kind one panics.
const onePanicsIn = 20

// What a job does, by the number that the profile has a name for.
type kind int

const (
	holds kind = iota
	locks
	sends
	receives
	sleeps
	asks
	syncs
	computes
	grows
	yields
	expires
	deadlines
	owns
	acquires
	writes
	reads
	signals
	awaits
	works
	joins
	keeps
	contends
	starves
	crunches
)

func (kind kind) String() string {
	return [...]string{"holds", "locks", "sends", "receives", "sleeps", "asks", "syncs", "computes", "grows", "yields", "expires", "deadlines",
		"owns", "acquires", "writes", "reads", "signals", "awaits", "works", "joins", "keeps", "contends", "starves", "crunches"}[kind]
}

// What the jobs use.
type service struct {
	file     *os.File
	locked   string
	upstream string
}

// What two jobs have in common: one has what the other one waits for.
type shared struct {
	lock    sync.Mutex
	channel chan int
	permits chan struct{}
	guard   sync.RWMutex
	isDone  bool
	done    *sync.Cond
	working sync.WaitGroup
	isHeld  chan struct{}
	// Of the one that has it, when it lets go.
	comes, came int64
}

func newService(data string) (*service, error) {
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(data, "synced"))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go answer(listener)
	locked := filepath.Join(data, "locked")
	return &service{file: file, locked: locked, upstream: listener.Addr().String()}, nil
}

// A server that answers after a while.
func answer(listener net.Listener) {
	for {
		stream, err := listener.Accept()
		if err != nil {
			return
		}
		go reply(stream)
	}
}

func reply(stream net.Conn) {
	defer stream.Close()
	question := make([]byte, 1)
	if _, err := stream.Read(question); err == nil {
		time.Sleep(held)
		_, _ = stream.Write([]byte("!"))
	}
}

// Where a job begins, and where it returns or is left by its panic. Its frame has no room on the stack of a new goroutine, so
// it begins by letting that grow.
//
//go:noinline
func (service *service) job(kind kind, number int, clocks *clocks, shared *shared) byte {
	clocks.innerBegin = now()
	var room [16 << 10]byte
	room[number%len(room)] = byte(kind)
	service.do(kind, clocks, shared)
	if number%onePanicsIn == onePanicsIn-1 {
		panic("as it is to")
	}
	clocks.innerEnd = now()
	return room[len(room)/2]
}

// What the kinds do.
func (service *service) do(kind kind, clocks *clocks, shared *shared) {
	clocks.waits = now()
	defer func() { clocks.goesOn = now() }()
	switch kind {
	case holds:
		shared.lock.Lock()
		shared.has(shared.lock.Unlock)
	case locks:
		shared.lock.Lock()
		shared.lock.Unlock()
	case sends:
		shared.has(func() { shared.channel <- 1 })
	case receives:
		<-shared.channel
	case sleeps:
		time.Sleep(held)
	case asks:
		service.ask()
	case syncs:
		if _, err := service.file.Write([]byte("a line\n")); err != nil {
			panic(err)
		}
		if err := service.file.Sync(); err != nil {
			panic(err)
		}
	case computes:
		for end := now() + busy; now() < end; {
		}
	case grows:
		deep(2000)
	case yields:
		for range [3]int{} {
			runtime.Gosched()
		}
	case expires:
		select {
		case <-make(chan int):
		case <-time.After(held):
		}
	case deadlines:
		context, cancel := context.WithTimeout(context.Background(), held)
		defer cancel()
		<-context.Done()
	case owns:
		shared.permits <- struct{}{}
		shared.has(func() { <-shared.permits })
	case acquires:
		shared.permits <- struct{}{}
		<-shared.permits
	case writes:
		shared.guard.Lock()
		shared.has(shared.guard.Unlock)
	case reads:
		shared.guard.RLock()
		shared.guard.RUnlock()
	case signals:
		shared.has(func() {
			shared.lock.Lock()
			shared.isDone = true
			shared.lock.Unlock()
			shared.done.Signal()
		})
	case awaits:
		shared.lock.Lock()
		for !shared.isDone {
			shared.done.Wait()
		}
		shared.lock.Unlock()
	case works:
		shared.has(shared.working.Done)
	case joins:
		shared.working.Wait()
	case keeps:
		file := service.lock()
		shared.has(func() { file.Close() })
	case contends:
		service.lock().Close()
	case starves:
		// Whoever waits for it goes on before it does, where there is one thread.
		close(shared.isHeld)
		runtime.Gosched()
	case crunches:
		for end := now() + busy; now() < end; {
		}
	}
}

// Has what the other job waits for, for a while.
func (shared *shared) has(letGo func()) {
	close(shared.isHeld)
	time.Sleep(held)
	shared.comes = now()
	letGo()
	shared.came = now()
}

// Takes a lock of the kernel's, until the file is closed.
func (service *service) lock() *os.File {
	file, err := os.OpenFile(service.locked, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		panic(err)
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if err == nil {
			return file
		}
		if err != syscall.EINTR {
			panic(err)
		}
	}
}

func (service *service) ask() {
	stream, err := net.Dial("tcp", service.upstream)
	if err != nil {
		panic(err)
	}
	defer stream.Close()
	if _, err := stream.Write([]byte("?")); err != nil {
		panic(err)
	}
	if _, err := stream.Read(make([]byte, 1)); err != nil {
		panic(err)
	}
}

// Needs some hundred KB of stack.
//
//go:noinline
func deep(levels int) byte {
	var room [128]byte
	room[levels%len(room)] = byte(levels)
	if levels == 0 {
		return 0
	}
	return deep(levels-1) + room[levels/2%len(room)]
}

// Runs a job in a goroutine of its own, to its end.
func (service *service) start(kind kind, number int, shared *shared) <-chan *clocks {
	done := make(chan *clocks, 1)
	go func() {
		clocks := &clocks{}
		service.try(kind, number, clocks, shared)
		clocks.outerEnd = now()
		done <- clocks
	}()
	return done
}

// Does a job, and goes on if it panics.
func (service *service) try(kind kind, number int, clocks *clocks, shared *shared) {
	defer func() {
		// The job has ended when this has returned.
		if recover() != nil {
			clocks.innerEnd = now()
		}
	}()
	clocks.outerBegin = now()
	service.job(kind, number, clocks, shared)
}

// Runs so many jobs of each kind: those of a kind one after the other, all kinds at a time.
func (service *service) all(jobs int) []string {
	var wait sync.WaitGroup
	var lock sync.Mutex
	var lines []string
	add := func(line string) {
		lock.Lock()
		defer lock.Unlock()
		lines = append(lines, line)
	}
	each := func(one func(number int)) {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for number := 0; number < jobs; number++ {
				one(number)
			}
		}()
	}
	panics := func(number int) bool { return number%onePanicsIn == onePanicsIn-1 }
	pair := func(has, waits kind) {
		each(func(number int) {
			shared := &shared{channel: make(chan int), permits: make(chan struct{}, 1), isHeld: make(chan struct{})}
			shared.done = sync.NewCond(&shared.lock)
			shared.working.Add(1)
			holder := service.start(has, number, shared)
			<-shared.isHeld
			waiter := service.start(waits, number, shared)
			ofHolder, ofWaiter := <-holder, <-waiter
			ofWaiter.comes, ofWaiter.came = shared.comes, shared.came
			add(ofHolder.line(has, number, panics(number)))
			add(ofWaiter.line(waits, number, panics(number)))
		})
	}
	pair(holds, locks)
	pair(sends, receives)
	pair(owns, acquires)
	pair(writes, reads)
	pair(signals, awaits)
	pair(works, joins)
	pair(keeps, contends)
	pair(starves, crunches)
	for _, alone := range []kind{sleeps, asks, syncs, computes, grows, yields, expires, deadlines} {
		alone := alone
		each(func(number int) {
			clocks := <-service.start(alone, number, nil)
			add(clocks.line(alone, number, panics(number)))
		})
	}
	wait.Wait()
	return lines
}

// Two goroutines that wake each other, and for which no job waits.
func beside() {
	channel := make(chan int)
	go func() {
		for range channel {
		}
	}()
	for {
		time.Sleep(400 * time.Microsecond)
		channel <- 1
	}
}
