// Servers of net/http and of gRPC whose handlers wait, and know for what: the kinds of handlers, and the answers, are those of the example
// `web`, whose clients ask them. Of gRPC there is no protobuf in it: a number is its eight bytes.
//
// In: what to serve by, and the address of an upstream. Out: the address.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"google.golang.org/grpc"
)

// How long a handler works, sleeps, has the lock, and computes with it then.
const (
	works    = 10 * time.Millisecond
	sleeps   = 20 * time.Millisecond
	holds    = 15 * time.Millisecond
	computes = 3 * time.Millisecond
)

// CLOCK_MONOTONIC in ns, as the tracer's. Not a system call that the runtime knows of.
func now() uint64 {
	const clockMonotonic = 1
	var time syscall.Timespec
	_, _, code := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&time)), 0)
	if code != 0 {
		panic(code)
	}
	return uint64(time.Nano())
}

type service struct {
	upstream string
	lock     sync.Mutex
	// When the lock was given back last.
	givenBack uint64
}

// When the handler began, since when it waited for somebody, when what it waited for came, and when it ended.
func (service *service) handle(kind string) (clocks [4]uint64, err error) {
	begin := now()
	waits, came := begin, begin
	switch kind {
	case "at-once":
	case "holds":
		service.lock.Lock()
		waits = now()
		came = waits + uint64(holds)
		time.Sleep(holds)
		for end := now() + uint64(computes); now() < end; {
		}
		service.givenBack = now()
		service.lock.Unlock()
	case "locks":
		service.lock.Lock()
		if service.givenBack > begin {
			came = service.givenBack
		}
		service.lock.Unlock()
	case "asks":
		waits, came, err = service.ask()
	case "sleeps":
		came = begin + uint64(sleeps)
		time.Sleep(sleeps)
	default:
		came = begin + uint64(works)
		time.Sleep(works)
	}
	return [4]uint64{begin, waits, came, now()}, err
}

// When the question was on its way, and when the upstream has answered.
func (service *service) ask() (asked, answered uint64, err error) {
	connection, err := net.Dial("tcp", service.upstream)
	if err != nil {
		return 0, 0, err
	}
	defer connection.Close()
	var number [8]byte
	if _, err := connection.Write(number[:]); err != nil {
		return 0, 0, err
	}
	asked = now()
	_, err = io.ReadFull(connection, number[:])
	return asked, binary.BigEndian.Uint64(number[:]), err
}

// `GET /KIND/NUMBER`.
func (service *service) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	clocks, err := service.handle(strings.Split(request.URL.Path, "/")[1])
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadGateway)
		return
	}
	fmt.Fprintln(writer, clocks[0], clocks[1], clocks[2], clocks[3])
}

// Numbers as messages.
type numbers struct{}

func (numbers) Marshal(value interface{}) ([]byte, error) {
	var bytes []byte
	for _, number := range value.([4]uint64) {
		bytes = append(bytes, make([]byte, 8)...)
		binary.BigEndian.PutUint64(bytes[len(bytes)-8:], number)
	}
	return bytes, nil
}

// What a question says is not needed.
func (numbers) Unmarshal([]byte, interface{}) error {
	return nil
}

func (numbers) String() string {
	return "proto"
}

// `/web.Web/KIND`.
func (service *service) serveGRPC(listener net.Listener) error {
	server := grpc.NewServer(grpc.CustomCodec(numbers{}))
	description := grpc.ServiceDesc{ServiceName: "web.Web", HandlerType: (*interface{})(nil)}
	for _, kind := range []string{"at-once", "holds", "locks", "asks", "sleeps", "works"} {
		kind := kind
		method := func(_ interface{}, _ context.Context, read func(interface{}) error, _ grpc.UnaryServerInterceptor) (interface{}, error) {
			if err := read(nil); err != nil {
				return nil, err
			}
			return service.handle(kind)
		}
		description.Methods = append(description.Methods, grpc.MethodDesc{MethodName: kind, Handler: method})
	}
	server.RegisterService(&description, service)
	return server.Serve(listener)
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: waits http|grpc UPSTREAM")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	service := &service{upstream: args[1]}
	fmt.Println("listening on", listener.Addr())
	if args[0] == "grpc" {
		return service.serveGRPC(listener)
	}
	return http.Serve(listener, service)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "waits: %v\n", err)
		os.Exit(1)
	}
}
