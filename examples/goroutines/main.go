// A service whose goroutines know where their time goes, to hold a trace against.
//
// In: how many jobs, and a line on standard input. Out: a log with one line a job, of what the job measured itself; or
// the address of a server of net/http.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

const usage = `usage: goroutines jobs -data DIR -log FILE -jobs N [-beside PAIRS] [-held-ms MS] [-gc PERCENT]
       goroutines http
  DIR must be on a disk: in memory, nothing waits for a disk. N is per kind of job; of twenty jobs one panics.`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "goroutines: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no mode\n%s", usage)
	}
	switch args[0] {
	case "jobs":
		return runJobs(args[1:])
	case "http":
		return serve()
	default:
		return fmt.Errorf("no mode `%s`\n%s", args[0], usage)
	}
}

func runJobs(args []string) error {
	options := flag.NewFlagSet("jobs", flag.ContinueOnError)
	data := options.String("data", "", "a folder on a disk")
	log := options.String("log", "", "the log")
	jobs := options.Int("jobs", 0, "how many of each kind")
	pairs := options.Int("beside", 0, "how many pairs of goroutines wake each other beside them")
	ms := options.Int("held-ms", 3, "how long a job has what others wait for")
	// The collector stops goroutines and moves their stacks all the time.
	gc := options.Int("gc", 5, "how much the heap grows before the collector runs, percent")
	if err := options.Parse(args); err != nil {
		return err
	}
	held = time.Duration(*ms) * time.Millisecond
	if *data == "" || *log == "" || *jobs <= 0 {
		return fmt.Errorf("an option is missing\n%s", usage)
	}
	file, err := os.Create(*log)
	if err != nil {
		return err
	}
	defer file.Close()
	service, err := newService(*data)
	if err != nil {
		return err
	}
	debug.SetGCPercent(*gc)
	fmt.Println("ready")
	input := bufio.NewReader(os.Stdin)
	_, _ = input.ReadString('\n')
	for number := 0; number < *pairs; number++ {
		go beside()
	}
	lines := service.all(*jobs)
	for _, line := range lines {
		if _, err := fmt.Fprintln(file, line); err != nil {
			return err
		}
	}
	fmt.Printf("%d jobs\n", len(lines))
	// Stays until it is told to go: a tracer may still want to look at this process.
	_, _ = input.ReadString('\n')
	return nil
}
