//go:build go1.23

package main

import "iter"

func init() {
	tried = append(tried, struct {
		name string
		work func(uint64) uint64
	}{"coroutines", pulled})
}

// Switches between two goroutines without the scheduler.
func pulled(seed uint64) uint64 {
	next, stop := iter.Pull(func(yield func(uint64) bool) {
		for number := uint64(0); number < 50; number++ {
			if !yield(deep(int(number*10), seed)) {
				return
			}
		}
	})
	defer stop()
	sum := uint64(0)
	for {
		value, ok := next()
		if !ok {
			return sum
		}
		sum = mixed(sum + value)
	}
}
