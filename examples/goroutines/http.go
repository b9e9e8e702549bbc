package main

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Serves `GET /MS`: it waits that many ms. Others do not return from where they are:
//
//	/panics    panics, which net/http recovers from; the connection is gone then
//	/repanics  the same, once more in a deferred function that has recovered from it
//	/recovers  panics deep within, and goes on behind it for 2 ms: it answers
//	/falls     the same, in a function that does not come back
//	/twice     recovers two times, of which one is in a deferred function of the other
//	/exits     ends its goroutine, and recovers from a panic while it does
func serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return http.Serve(listener, http.HandlerFunc(handle))
}

func handle(writer http.ResponseWriter, request *http.Request) {
	begin := now()
	path := strings.TrimPrefix(request.URL.Path, "/")
	switch path {
	case "panics":
		// What net/http does not log.
		panic(http.ErrAbortHandler)
	case "repanics":
		defer func() { panic(recover()) }()
		panic(http.ErrAbortHandler)
	case "recovers":
		guarded(func() { fails(20) })
		path = "2"
	case "twice":
		guarded(func() {
			defer guarded(func() { fails(5) })
			fails(20)
		})
		path = "2"
	case "falls":
		func() {
			defer func() { _ = recover() }()
			falls()
		}()
		path = "2"
	case "exits":
		defer func() { _ = recover() }()
		exits()
	}
	ms, err := strconv.Atoi(path)
	if err != nil {
		http.Error(writer, "no number of ms", http.StatusBadRequest)
		return
	}
	time.Sleep(time.Duration(ms) * time.Millisecond)
	fmt.Fprintf(writer, "%d %d\n", begin, now())
}

// Calls what may panic, and recovers from that itself.
//
//go:noinline
func guarded(call func()) {
	defer func() { _ = recover() }()
	call()
}

// Never returns.
//
//go:noinline
func falls() {
	fails(5)
}

// Ends its goroutine. A panic that is recovered further out meanwhile does not keep it from that.
//
//go:noinline
func exits() {
	defer fails(5)
	runtime.Goexit()
}

// Has a fault so many calls further in, which is no call of `panic`.
//
//go:noinline
func fails(levels int) int {
	if levels == 0 {
		var nowhere *int
		return *nowhere
	}
	return fails(levels-1) + 1
}
