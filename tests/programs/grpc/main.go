// A server of gRPC with one service, and a client of it.
//
// In: how many workers the server has, 0 for a goroutine a call; or its address, connections and calls on each. Out: the address;
// or how many calls of the client had which code.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Of so many calls two panic, one of which is a stream, and one returns an error.
const onePanicsIn = 20

type service struct{}

func (service) Check(_ context.Context, request *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	switch request.Service {
	case "panics":
		panic("as it is to")
	case "fails":
		return nil, status.Error(codes.NotFound, "as it is to")
	}
	time.Sleep(time.Millisecond)
	return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
}

func (service) Watch(request *health.HealthCheckRequest, stream health.Health_WatchServer) error {
	if request.Service == "panics" {
		panic("as it is to")
	}
	return stream.Send(&health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING})
}

func recovered(err *error) {
	if recover() != nil {
		*err = status.Error(codes.Internal, "it has panicked")
	}
}

func serve(workers int) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.NumStreamWorkers(uint32(workers)),
		grpc.UnaryInterceptor(func(ctx context.Context, request interface{}, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (_ interface{}, err error) {
			defer recovered(&err)
			return handler(ctx, request)
		}),
		grpc.StreamInterceptor(func(server interface{}, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
			defer recovered(&err)
			return handler(server, stream)
		}),
	)
	health.RegisterHealthServer(server, service{})
	fmt.Println(listener.Addr())
	return server.Serve(listener)
}

// One connection: so many calls, of which each fifth is a stream.
func call(address string, calls int, count func(codes.Code)) error {
	connection, err := grpc.Dial(address, grpc.WithInsecure(), grpc.WithBlock())
	if err != nil {
		return err
	}
	defer connection.Close()
	client := health.NewHealthClient(connection)
	for number := 0; number < calls; number++ {
		name := ""
		switch number % onePanicsIn {
		case 7, onePanicsIn - 1:
			name = "panics"
		case 2:
			name = "fails"
		}
		request := &health.HealthCheckRequest{Service: name}
		if number%5 == 4 {
			stream, err := client.Watch(context.Background(), request)
			if err == nil {
				_, err = stream.Recv()
			}
			count(status.Code(err))
			// Until the server has ended it.
			for err == nil {
				_, err = stream.Recv()
			}
			continue
		}
		_, err := client.Check(context.Background(), request)
		count(status.Code(err))
	}
	return nil
}

func load(address string, connections, calls int) error {
	var lock sync.Mutex
	var wait sync.WaitGroup
	counts := map[codes.Code]int{}
	errors := make(chan error, connections)
	for number := 0; number < connections; number++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			errors <- call(address, calls, func(code codes.Code) {
				lock.Lock()
				defer lock.Unlock()
				counts[code]++
			})
		}()
	}
	wait.Wait()
	for number := 0; number < connections; number++ {
		if err := <-errors; err != nil {
			return err
		}
	}
	fmt.Println(counts[codes.OK], counts[codes.NotFound], counts[codes.Internal])
	return nil
}

func run(args []string) error {
	if len(args) == 0 {
		args = []string{""}
	}
	var numbers []int
	for _, arg := range args[1:] {
		if number, err := strconv.Atoi(arg); err == nil {
			numbers = append(numbers, number)
		}
	}
	switch {
	case args[0] == "serve" && len(numbers) == 1:
		return serve(numbers[0])
	case args[0] == "call" && len(numbers) == 2:
		return load(args[1], numbers[0], numbers[1])
	}
	return fmt.Errorf("usage: grpc serve WORKERS | grpc call ADDRESS CONNECTIONS CALLS")
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "grpc: %v\n", err)
		os.Exit(1)
	}
}
