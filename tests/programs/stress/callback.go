package main

/*
#include <stdint.h>

extern uint64_t goCalled(uint64_t);

static uint64_t callsBack(uint64_t seed) {
	uint64_t sum = 0;
	for (int number = 0; number < 10; number++)
		sum += goCalled(seed + number);
	return sum;
}
*/
import "C"

func init() {
	tried = append(tried, struct {
		name string
		work func(uint64) uint64
	}{"callbacks", func(seed uint64) uint64 { return uint64(C.callsBack(C.uint64_t(seed))) }})
}

// On the goroutine that has called C, which may move meanwhile.
//
//export goCalled
func goCalled(seed C.uint64_t) C.uint64_t {
	return C.uint64_t(deep(int(seed%1000), uint64(seed)))
}
