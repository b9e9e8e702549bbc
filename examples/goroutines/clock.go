package main

import (
	"fmt"
	"syscall"
	"unsafe"
)

// The clock of the tracer, CLOCK_MONOTONIC, in ns. Not a system call that the runtime knows of: no goroutine leaves its
// thread for it.
func now() int64 {
	const clockMonotonic = 1
	var time syscall.Timespec
	_, _, code := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&time)), 0)
	if code != 0 {
		panic(code)
	}
	return time.Nano()
}

// What a job measured. It begins between the first two, ends between the next two, and is away from its thread at most
// from `waits` to `goesOn`.
type clocks struct {
	outerBegin, innerBegin int64
	innerEnd, outerEnd     int64
	waits, goesOn          int64
	// When what it waits for came, at the earliest and at the latest; 0: nobody knows.
	comes, came int64
}

func (clocks *clocks) line(kind kind, number int, panics bool) string {
	end := "ends"
	if panics {
		end = "panics"
	}
	return fmt.Sprintf("%s %d %s %d..%d %d..%d %d..%d %d..%d", kind, number, end, clocks.outerBegin, clocks.innerBegin,
		clocks.innerEnd, clocks.outerEnd, clocks.waits, clocks.goesOn, clocks.comes, clocks.came)
}
