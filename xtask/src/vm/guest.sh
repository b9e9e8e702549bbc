#!/bin/busybox sh
# The guest's init: traces the example services and sends the results to the second serial port. What is printed here goes to the first one, the console.

/bin/busybox mkdir -p /proc /sys /dev /tmp /data /disk /out /sbin /usr/bin /usr/sbin
/bin/busybox --install -s
export PATH=/bin:/sbin:/usr/bin:/usr/sbin

LOAD_CONNECTIONS=4
LOAD_REQUESTS=1000
TRACE_SECONDS=120
ATTACH_SECONDS=240
TRUTH_REQUESTS=15
# Longer than an emulated machine takes to come to the wait.
TRUTH_WAIT_MS=20
MOVING_REQUESTS=60
KNOWN_CALLS=15
UNIT_JOBS=30
# As long as that, for the same reason.
UNIT_HELD_MS=20
# The collector of an emulated machine would stop goroutines for most of the time.
UNIT_GC=100

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mount -t tmpfs tmpfs /tmp
mount -t tracefs tracefs /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf
mount -t ext4 /dev/nvme0n1 /disk
ip link set lo up

say() {
    echo "REQTRACE-VM $(cut -d ' ' -f 1 /proc/uptime) $*"
}

# Sends everything and powers off; what is missing in it is for the host to judge.
finish() {
    say "sending"
    dmesg >/out/dmesg
    uname -r >/out/kernel
    stty -F /dev/ttyS1 raw
    tar -C /out -czf - . >/dev/ttyS1
    say "end"
    poweroff -f
}

# Writes a program's exit code where the host looks for it.
record() {
    echo "$2" >"/out/$1.status"
    say "$1 ended with $2"
}

# Waits until a line of a file begins so.
wait_for() {
    local waited=0
    until grep -q "^$2" "$1"; do
        if [ "$waited" -ge "$3" ]; then
            say "no line $2 in $1"
            return 1
        fi
        waited=$((waited + 1))
        sleep 1
    done
}

# Waits until the tracer says on standard error, here in that file, that its probes are in place.
wait_attached() {
    local waited=0
    while [ "$waited" -lt "$ATTACH_SECONDS" ] && kill -0 "$1" 2>/dev/null; do
        if grep -q '^tracing ' "$2"; then
            say "attached"
            return 0
        fi
        waited=$((waited + 1))
        sleep 1
    done
    say "the tracer did not say that it is tracing"
    return 1
}

say "begin $(uname -r)"

reqtrace doctor >/out/doctor.txt 2>/out/doctor.err
record doctor $?
reqtrace classes >/out/classes.txt 2>/out/classes.err
record classes $?

shop serve --listen 127.0.0.1:0 --data /data --log /out/service.log >/out/serve.out 2>/out/serve.err &
shop=$!
wait_for /out/serve.out 'listening on ' 30
address=$(sed -n 's/^listening on //p' /out/serve.out)
if [ -z "$address" ]; then
    say "the service does not listen"
    finish
fi

# Nothing calls them yet: it is tried whether this kernel takes the program that notes arguments.
reqtrace functions -p "$shop" 'shop::service::*' --as-profile --count 1 >/out/functions.toml 2>/out/functions.err
record functions $?

# Under emulation tracing takes more than its share, on a busy host all of it: nothing is to be shed all the same. All orders are
# slow by --keep-slow: this kernel is to take the programs that choose.
reqtrace --profile /shop.toml -p "$shop" "$TRACE_SECONDS" --labels --keep-slow 1us --max-overhead 100 --out /out/trace \
    --record /tmp/trace.rec \
    >/out/report.txt 2>/out/reqtrace.err &
tracer=$!
if wait_attached "$tracer" /out/reqtrace.err; then
    shop load --connect "$address" --connections "$LOAD_CONNECTIONS" --requests "$LOAD_REQUESTS" \
        >/out/load.out 2>&1
    record load $?
fi

# The load is over; the tracer ends early and still reports.
kill -TERM "$tracer" 2>/dev/null
wait "$tracer"
record reqtrace $?
reqtrace report /tmp/trace.rec --stacks on-cpu --folded /out/on-cpu.folded -q 2>/out/report.err
record report $?

# The service writes its log when it is asked to end.
kill -TERM "$shop"
wait "$shop"
record shop $?

# Traces a service that says "ready" (and the number of its child, if it has one), works after a line on its standard
# input, and ends with that. In: its name, how the line begins that says that it has worked, its command, the
# tracer's options.
traced() {
    local out=/out/$1
    mkdir -p "$out"
    mkfifo "/tmp/$1"
    $3 <"/tmp/$1" >"$out/service.out" 2>"$out/service.err" &
    local service=$!
    exec 5>"/tmp/$1"
    wait_for "$out/service.out" ready 30
    local pids=$service$(sed -n 's/^ready /,/p' "$out/service.out")
    reqtrace $4 -p "$pids" "$TRACE_SECONDS" --out "$out/trace" 5>&- >"$out/report.txt" 2>"$out/reqtrace.err" &
    local tracer=$!
    if wait_attached "$tracer" "$out/reqtrace.err"; then
        echo go >&5
        wait_for "$out/service.out" "$2" "$TRACE_SECONDS"
    fi
    kill -TERM "$tracer" 2>/dev/null
    wait "$tracer"
    record "$1/reqtrace" $?
    exec 5>&-
    wait "$service"
    record "$1/service" $?
}

# Whether all services are traced, or one of each family of the kernel programs.
wants_all() {
    grep -q reqtrace.all /proc/cmdline
}

# The example that measures its own waits, and its requests that change threads.
traced truth '[0-9]* requests' \
    "truth --data /disk --log /out/truth/log --requests $TRUTH_REQUESTS --wait-ms $TRUTH_WAIT_MS" \
    "-v --max-overhead 100 --profile /truth.toml"
if wants_all; then
    traced moving '[0-9]* requests' "truth --moving --log /out/moving/log --requests $MOVING_REQUESTS" \
        "--max-overhead 100 --profile /moving.toml"
fi

# Services whose requests wait because of somebody who is known, longer than an emulated machine takes to come to it.
export LONGER=4
for name in locks $(wants_all && echo chains pair); do
    traced "$name" done "$name $KNOWN_CALLS /disk" "--blame --max-overhead 100 --profile /$name.toml"
done
unset LONGER

# Jobs that are tasks of tokio, on many threads and on one; and jobs in goroutines: from the start of each goroutine to its end,
# from the call to the return of a function, and by kinds.
for runtime in multi $(wants_all && echo current); do
    traced "tasks-$runtime" '[0-9]* jobs' \
        "tasks jobs --runtime $runtime --jobs $UNIT_JOBS --held-ms $UNIT_HELD_MS --data /disk/tasks --log /out/tasks-$runtime/log" \
        "--blame --keep-slow 1us --max-overhead 100 --profile /tasks.toml"
done
in_go() {
    traced "$1" '[0-9]* jobs' "goroutines jobs -jobs $UNIT_JOBS -held-ms $UNIT_HELD_MS -gc $UNIT_GC -data /disk/goroutines -log /out/$1/log" \
        "--max-overhead 100 --profile /$1.toml $2"
}
in_go units --blame
if wants_all; then
    in_go goroutines
    in_go kinds --blame
    in_go pairs --blame
fi

# How it does where something is missing, forbidden or elsewhere.
if grep -q reqtrace.trials /proc/cmdline; then
    . /trials.sh
fi

finish
