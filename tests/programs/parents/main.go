// Requests that start goroutines and wait for them: one sleeps, one computes, and one starts another that sleeps, and waits for
// that. Arguments: how many workers, and how many requests each of them does, one after the other.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	napped = 5 * time.Millisecond
	burned = time.Millisecond
)

//go:noinline
func nap(wait *sync.WaitGroup) {
	defer wait.Done()
	time.Sleep(napped)
}

//go:noinline
func burn(wait *sync.WaitGroup) {
	defer wait.Done()
	for since := time.Now(); time.Since(since) < burned; {
	}
}

//go:noinline
func delegate(wait *sync.WaitGroup) {
	defer wait.Done()
	var inner sync.WaitGroup
	inner.Add(1)
	go nap(&inner)
	inner.Wait()
}

//go:noinline
func request() {
	var wait sync.WaitGroup
	wait.Add(3)
	go nap(&wait)
	go burn(&wait)
	go delegate(&wait)
	wait.Wait()
}

// A goroutine that is a request itself.
//
//go:noinline
func whole(done chan<- bool) {
	request()
	done <- true
}

func main() {
	workers, _ := strconv.Atoi(os.Args[1])
	requests, _ := strconv.Atoi(os.Args[2])
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	var all sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		all.Add(1)
		go func() {
			defer all.Done()
			done := make(chan bool)
			for number := 0; number < requests; number++ {
				go whole(done)
				<-done
			}
		}()
	}
	all.Wait()
	fmt.Println("done")
	bufio.NewReader(os.Stdin).ReadString('\n')
}
