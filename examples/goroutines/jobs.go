package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// How long somebody has what a job waits for.
const held = 3 * time.Millisecond

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
)

func (kind kind) String() string {
	return [...]string{"holds", "locks", "sends", "receives", "sleeps", "asks", "syncs", "computes", "grows", "yields", "expires", "deadlines"}[kind]
}

// What the jobs use.
type service struct {
	file     *os.File
	upstream string
}

// What two jobs have in common: one has what the other one waits for.
type shared struct {
	lock    sync.Mutex
	channel chan int
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
	return &service{file: file, upstream: listener.Addr().String()}, nil
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

// Where a job begins, and where it returns unless it panics. Its frame has no room on the stack of a new goroutine, so
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
		close(shared.isHeld)
		time.Sleep(held)
		shared.comes = now()
		shared.lock.Unlock()
		shared.came = now()
	case locks:
		shared.lock.Lock()
		shared.lock.Unlock()
	case sends:
		close(shared.isHeld)
		time.Sleep(held)
		shared.comes = now()
		shared.channel <- 1
		shared.came = now()
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
		defer func() {
			// That of a job that panics; none of the others.
			_ = recover()
			clocks.outerEnd = now()
			done <- clocks
		}()
		clocks.outerBegin = now()
		service.job(kind, number, clocks, shared)
	}()
	return done
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
			shared := &shared{channel: make(chan int), isHeld: make(chan struct{})}
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
