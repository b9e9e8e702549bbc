package main

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Serves `GET /MS`: it waits that many ms. `GET /panics` panics, which net/http recovers from; the connection is gone then.
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
	if path == "panics" {
		// What net/http does not log.
		panic(http.ErrAbortHandler)
	}
	ms, err := strconv.Atoi(path)
	if err != nil {
		http.Error(writer, "no number of ms", http.StatusBadRequest)
		return
	}
	time.Sleep(time.Duration(ms) * time.Millisecond)
	fmt.Fprintf(writer, "%d %d\n", begin, now())
}
